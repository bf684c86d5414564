# Tries: taking over the driver, its parent and process 1 by ptrace
# End: finished
# Cases: 1
# Tests: 1
import ctypes
import os


def total(xs):
    return sum(xs)


libc = ctypes.CDLL(None, use_errno=True)
for pid in (1, os.getppid(), int("@SENTINEL@"), int("@SERVER@")):
    for request in (16, 0x4206):
        if pid and libc.ptrace(request, pid, 0, 0) == 0:
            print("@REACHED@ ptrace", pid)
            libc.ptrace(17, pid, 0, 0)
print(libc.ptrace(0, 0, 0, 0), ctypes.get_errno())
