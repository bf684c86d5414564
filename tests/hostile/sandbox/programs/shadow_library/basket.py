# Tries: modules of its own by the names of those that drivers and tests import
# End: finished
# Cases: 1
# Tests: 1
def total(xs):
    return sum(xs)
