# Tries: an endless loop inside C code, which never looks at signals
# End: too long
# Cases: 0
# Tests: -
# Seconds: 0.7
import collections
import itertools


def total(xs):
    return sum(xs)


collections.deque(itertools.repeat(0), maxlen=0)
