# Tries: taking all memory, a little in each of many processes
# End: memory | finished | left | processes
# Cases: <= 1
# Tests: -
import os
import time


def total(xs):
    return sum(xs)


parent = os.getpid()
for _ in range(12):
    if os.getpid() == parent and os.fork() == 0:
        hoard = bytearray(b"x") * (60 << 20)
        time.sleep(3)
        os._exit(0)
time.sleep(1.5)
