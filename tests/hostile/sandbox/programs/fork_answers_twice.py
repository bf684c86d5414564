# Tries: two processes that both go on as the driver, so that there are two answers to everything
# End: finished | left | too long | output
# Cases: <= 1
# Tests: -
# Seconds: 2
import os


def total(xs):
    return sum(xs)


os.fork()
