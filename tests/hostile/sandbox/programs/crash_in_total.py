# Tries: a segmentation fault for one input; the other tests must still count
# End: finished
# Cases: 0.875
# Tests: 1
import ctypes


def total(xs):
    xs = list(xs)
    if len(xs) == 100:
        ctypes.string_at(1)
    return sum(xs)
