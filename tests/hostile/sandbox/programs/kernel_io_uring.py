# Tries: io_uring, which does what other calls are forbidden to do
# End: finished
# Cases: 1
# Tests: -
import ctypes


def total(xs):
    return sum(xs)


libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(425, 8, ctypes.create_string_buffer(120))
print("@REACHED@ io_uring" if fd >= 0 else ctypes.get_errno())
