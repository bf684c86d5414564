# Tries: more threads than a machine can stand
# End: processes | finished | too long | memory | left
# Cases: <= 1
# Tests: -
import threading
import time


def total(xs):
    return sum(xs)


for _ in range(2000):
    try:
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    except RuntimeError:
        time.sleep(0.001)
