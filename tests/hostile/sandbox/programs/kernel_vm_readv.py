# Tries: memory of other processes by process_vm_readv, pidfd_getfd and kcmp
# End: finished
# Cases: 1
# Tests: -
import ctypes
import os

ARM = os.uname().machine == "aarch64"


def total(xs):
    return sum(xs)


libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(64)
local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 64)
remote = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 64)
for pid in (1, os.getppid(), int("@SENTINEL@"), int("@SERVER@")):
    if pid and libc.syscall(270 if ARM else 310, pid, local, 1, remote, 1, 0) > 0:
        print("@REACHED@ memory of", pid)
    pidfd = libc.syscall(434, pid, 0)
    if pidfd >= 0 and libc.syscall(438, pidfd, 0, 0) >= 0:
        print("@REACHED@ descriptor of", pid)
