# Tries: a regular expression that backtracks for years
# End: finished | too long
# Cases: 0
# Tests: -
import re


re.match(r"(a+)+$", "a" * 60 + "b")


def wrong(xs):
    return 0
