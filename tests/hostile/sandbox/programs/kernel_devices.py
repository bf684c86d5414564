# Tries: devices: making them, opening the disk, the memory, the console and the kernel's log
# End: finished
# Cases: 1
# Tests: -
import glob
import os
import stat


def total(xs):
    return sum(xs)


for name, major, minor in (("sda", 8, 0), ("vda", 254, 0), ("mem", 1, 1), ("kmsg", 1, 11), ("loop", 7, 0)):
    for kind in (stat.S_IFBLK, stat.S_IFCHR):
        try:
            os.mknod(f"/tmp/{name}{kind}", 0o666 | kind, os.makedev(major, minor))
            with open(f"/tmp/{name}{kind}", "rb") as file:
                print("@REACHED@", name, file.read(10))
        except OSError as error:
            print(error.errno, end=" ")
known = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
for path in glob.glob("/dev/*"):
    if stat.S_ISBLK(os.stat(path, follow_symlinks=False).st_mode) or (
        stat.S_ISCHR(os.stat(path, follow_symlinks=False).st_mode) and os.path.basename(path) not in known
    ):
        print("@REACHED@", path)
