# Tries: a user namespace of its own, in which it would be root
# End: finished
# Cases: 1
# Tests: -
import ctypes
import os
import subprocess


def total(xs):
    return sum(xs)


libc = ctypes.CDLL(None, use_errno=True)
for flag in (0x10000000, 0x20000000, 0x40000000, 0x00020000, 0x02000000, 0x10000000 | 0x40000000):
    if os.fork() == 0:
        if libc.unshare(flag) == 0:
            os.write(1, b"@REACHED@ unshare %x\n" % flag)
        os._exit(0)
    os.wait()
try:
    done = subprocess.run(["unshare", "-Urmn", "id"], capture_output=True, text=True, timeout=2)
    print(done)
    if done.returncode == 0:
        print("@REACHED@ unshare")
except OSError as error:
    print(error)
