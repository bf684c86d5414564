# Tries: a new user namespace through clone and clone3, whose flags a filter cannot see
# End: finished
# Cases: 1
# Tests: -
import ctypes
import os

ARM = os.uname().machine == "aarch64"


def total(xs):
    return sum(xs)


libc = ctypes.CDLL(None, use_errno=True)
arguments = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)
pid = libc.syscall(435, arguments, 88)
if pid == 0:
    os.write(1, b"@REACHED@ clone3\n")
    os._exit(0)
print(pid, ctypes.get_errno())
pid = libc.syscall(220 if ARM else 56, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0:
    os.write(1, b"@REACHED@ clone\n")
    os._exit(0)
print(pid, ctypes.get_errno())
while pid > 0:
    try:
        os.wait()
    except ChildProcessError:
        break
