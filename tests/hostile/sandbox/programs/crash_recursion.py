# Tries: recursion without a limit, until the interpreter crashes
# End: left | memory | finished
# Cases: 0
# Tests: -
import sys

sys.setrecursionlimit(10**9)


class Deep:
    def __getattr__(self, name):
        return getattr(self, name + "x")


def down(n):
    return down(n + 1) + repr(Deep().a)


down(0)
