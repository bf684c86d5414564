# Tries: endless errors
# End: output | finished | too long
# Cases: <= 1
# Tests: -
import sys


def total(xs):
    return sum(xs)


while True:
    sys.stderr.write("x" * 65536)
