# Tries: a folder in a folder in a folder, deeper than tools can remove
# End: finished | too long | memory
# Cases: <= 1
# Tests: -
import os


def total(xs):
    return sum(xs)


for _ in range(20_000):
    os.mkdir("d" * 50)
    os.chdir("d" * 50)
