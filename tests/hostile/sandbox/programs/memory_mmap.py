# Tries: shared anonymous maps
# End: memory | finished | left
# Cases: <= 1
# Tests: -
import mmap


def total(xs):
    return sum(xs)


maps = []
for _ in range(40):
    area = mmap.mmap(-1, 16 << 20)
    area.write(b"x" * (16 << 20))
    maps.append(area)
print("@REACHED@ 640 MB of shared maps")
