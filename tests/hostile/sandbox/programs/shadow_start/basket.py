# Tries: files that interpreters and runners of tests read at their start
# End: finished
# Cases: 0
# Tests: 0
# Suite: pytest
def total(xs):
    return None
