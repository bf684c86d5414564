# Tries: threads that never end, beside an honest solution
# End: finished | too long
# Cases: <= 1
# Tests: -
# Seconds: 0.7
import threading


def total(xs):
    return sum(xs)


def spin():
    while True:
        pass


for _ in range(4):
    threading.Thread(target=spin).start()
