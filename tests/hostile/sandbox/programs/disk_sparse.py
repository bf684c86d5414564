# Tries: sparse files of a terabyte, and reserving space
# End: finished | left | memory
# Cases: 1
# Tests: -
import os


def total(xs):
    return sum(xs)


for number in range(10):
    try:
        with open(f"/tmp/sparse{number}", "wb") as file:
            file.truncate(1 << 40)
            file.seek((1 << 40) - 1)
            file.write(b"x")
            os.posix_fallocate(file.fileno(), 0, 4 << 30)
            print("@REACHED@ 4 GB reserved")
    except OSError as error:
        print(error)
