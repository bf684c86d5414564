# Tries: killing every process there is
# End: left | finished | too long
# Cases: <= 1
# Tests: -
import os
import signal


def total(xs):
    return sum(xs)


if os.path.exists("/proc/@SENTINEL@/comm"):
    print("@REACHED@ processes outside, spared")
else:
    os.kill(-1, signal.SIGKILL)
