# Tries: handlers for every signal that loop without end, then a signal to itself
# End: too long | left
# Cases: 0
# Tests: -
# Seconds: 0.7
import os
import signal


def forever(*_):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


for number in range(1, 65):
    try:
        signal.signal(number, forever)
    except (OSError, ValueError):
        pass
os.kill(os.getpid(), signal.SIGALRM)
