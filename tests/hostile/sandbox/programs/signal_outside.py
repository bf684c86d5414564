# Tries: killing processes of this machine by their numbers
# End: finished
# Cases: 1
# Tests: -
import os
import signal


def total(xs):
    return sum(xs)


if os.path.exists("/proc/@SENTINEL@/comm"):
    print("@REACHED@ sees processes outside")
for number in (0, signal.SIGTERM, signal.SIGKILL):
    try:
        os.kill(int("@SENTINEL@"), number)
        print("@REACHED@ sent", number)
    except OSError as error:
        print(error)
