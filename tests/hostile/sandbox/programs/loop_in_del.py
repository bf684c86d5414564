# Tries: an endless loop in __del__ when the interpreter ends
# End: finished | too long
# Cases: 1
# Tests: 1
# Seconds: 10
import sys


class Endless:
    def __del__(self):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass


sys.keep = Endless()


def total(xs):
    return sum(xs)
