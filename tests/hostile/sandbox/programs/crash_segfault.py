# Tries: a segmentation fault in the middle of the work
# End: left
# Cases: 0
# Tests: -
import ctypes


def total(xs):
    return sum(xs)


ctypes.string_at(1)
