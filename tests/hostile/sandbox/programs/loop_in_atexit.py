# Tries: an endless loop in atexit
# End: finished | too long
# Cases: 1
# Tests: 1
# Seconds: 10
import atexit


def total(xs):
    return sum(xs)


@atexit.register
def never_ends():
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
