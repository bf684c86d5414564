# Tries: becoming another user: set-user-id programs, setuid, capabilities, a copy of the shell with the bit
# End: finished
# Cases: 1
# Tests: -
import ctypes
import os
import shutil
import subprocess


def total(xs):
    return sum(xs)


for command in (["su", "-c", "id"], ["sudo", "-n", "id"], ["pkexec", "id"], ["mount"], ["passwd", "-S"],
                ["newgrp", "root"], ["chsh", "-s", "/bin/sh"], ["doas", "id"], ["fusermount", "/tmp"]):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1, stdin=subprocess.DEVNULL)
        if "uid=0" in done.stdout:
            print("@REACHED@", command, done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(error)
with open("/proc/self/status") as file:
    for line in file:
        if line.startswith(("CapPrm", "CapEff", "CapBnd", "CapAmb")) and int(line.split()[1], 16):
            print("@REACHED@", line)
        if line.startswith("NoNewPrivs") and line.split()[1] != "1":
            print("@REACHED@", line)
shutil.copy("/bin/sh", "/tmp/sh")
try:
    os.chmod("/tmp/sh", 0o4755)
    os.chown("/tmp/sh", 0, 0)
except OSError as error:
    print(error)
libc = ctypes.CDLL(None, use_errno=True)
before = os.getresuid()
for number in (0, 1, 65534):
    if libc.setresuid(number, number, number) == 0 and number not in before:
        print("@REACHED@ setuid", number)
