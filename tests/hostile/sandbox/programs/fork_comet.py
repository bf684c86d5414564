# Tries: processes that fork and end at once, faster than anybody can count or kill them
# End: processes | finished | too long | left
# Cases: <= 1
# Tests: -
import os
import time


def total(xs):
    return sum(xs)


if os.fork() == 0:
    os.setsid()
    until = time.time() + 20
    while time.time() < until:
        try:
            if os.fork():
                os._exit(0)
        except OSError:
            pass
