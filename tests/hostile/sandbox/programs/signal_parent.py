# Tries: killing and stopping its parent and process 1
# End: left | finished | too long
# Cases: <= 1
# Tests: -
import os
import signal


def total(xs):
    return sum(xs)


for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
    for pid in (os.getppid(), 1):
        try:
            if pid and not os.path.exists("/proc/@SENTINEL@/comm"):
                os.kill(pid, number)
                print("sent", number, "to", pid)
        except OSError as error:
            print(error)
