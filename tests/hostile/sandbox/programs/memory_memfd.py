# Tries: files in memory without a name
# End: memory | finished | left
# Cases: <= 1
# Tests: -
import os


def total(xs):
    return sum(xs)


for _ in range(40):
    fd = os.memfd_create("hoard")
    os.write(fd, b"x" * (16 << 20))
print("@REACHED@ 640 MB of memfd")
