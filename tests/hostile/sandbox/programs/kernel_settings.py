# Tries: settings of the kernel: core_pattern, sysrq, oom_score_adj, cgroups, hostname, clock, nice
# End: finished
# Cases: 1
# Tests: -
import glob
import os
import socket
import time


def total(xs):
    return sum(xs)


# what is written is what was there, or asks for help only: no machine is harmed where it works
for path, text in (("/proc/sys/kernel/core_pattern", None), ("/proc/sys/kernel/modprobe", None),
                   ("/proc/sys/vm/drop_caches", "0"), ("/proc/sysrq-trigger", "h"), ("/proc/sys/kernel/hostname", None),
                   ("/proc/self/oom_score_adj", "-1000"), ("/sys/fs/cgroup/cgroup.procs", "0"),
                   *((path, None) for path in glob.glob("/sys/fs/cgroup/*/release_agent")[:5]),
                   *((path, "0") for path in glob.glob("/sys/fs/cgroup/*/tasks")[:5])):
    try:
        if text is None:
            with open(path) as file:
                text = file.read()
        with open(path, "w") as file:
            file.write(text)
        print("@REACHED@ wrote", path)
    except OSError as error:
        print(error.errno, end=" ")
try:
    name = socket.gethostname()
    socket.sethostname(name)
    print("@REACHED@ hostname")
except OSError as error:
    print(error)
try:
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    print("@REACHED@ clock")
except OSError as error:
    print(error)
try:
    os.nice(-10)
    print("@REACHED@ nice")
except OSError as error:
    print(error)
