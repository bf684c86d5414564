# Tries: leaving a daemon behind that lives longer than its box
# End: finished | left
# Cases: 1
# Tests: -
import os
import time


def total(xs):
    return sum(xs)


if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3, 64):
            try:
                os.close(fd)
            except OSError:
                pass
        os.execvp("sleep", ["sleep", "40"])
    os._exit(0)
time.sleep(0.1)
