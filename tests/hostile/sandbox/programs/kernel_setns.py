# Tries: entering the namespaces of process 1 and of the server
# End: finished
# Cases: 1
# Tests: -
import ctypes
import glob
import os


def total(xs):
    return sum(xs)


libc = ctypes.CDLL(None, use_errno=True)
for pid in ("1", str(os.getppid()), "@SENTINEL@", "@SERVER@"):
    for path in glob.glob(f"/proc/{pid}/ns/*"):
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError as error:
            print(error.errno, end=" ")
            continue
        if libc.setns(fd, 0) == 0:
            print("@REACHED@ setns", path)
        os.close(fd)
