# Tries: a fork bomb
# End: processes | finished | too long | left
# Cases: <= 1
# Tests: -
import os
import time


def total(xs):
    return sum(xs)


for _ in range(12):
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
time.sleep(0.5)
