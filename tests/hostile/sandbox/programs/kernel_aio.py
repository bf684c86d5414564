# Tries: asynchronous I/O of the kernel's own, of which the whole computer has one quota (fs.aio-max-nr)
# End: finished
# Cases: 1
# Tests: -
import ctypes
import platform


def total(xs):
    return sum(xs)


libc = ctypes.CDLL(None, use_errno=True)
number = 206 if platform.machine() == "x86_64" else 0
context = ctypes.c_ulong(0)
given = libc.syscall(number, 1024, ctypes.byref(context))
print("@REACHED@ aio" if given == 0 else ctypes.get_errno())
