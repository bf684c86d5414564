# Tries: endless output of another program
# End: output | finished | too long
# Cases: <= 1
# Tests: -
import subprocess


def total(xs):
    return sum(xs)


subprocess.run(["yes", "no"])
