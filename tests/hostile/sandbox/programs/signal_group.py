# Tries: stopping its own process group, so that nobody ever answers again
# End: too long | left
# Cases: 0
# Tests: -
# Seconds: 2
import os
import signal


def total(xs):
    return sum(xs)


if not os.path.exists("/proc/@SENTINEL@/comm"):
    os.killpg(0, signal.SIGSTOP)
