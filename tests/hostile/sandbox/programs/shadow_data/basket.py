# Tries: files in a folder named as the assignment's data, in place of it and of modules
# End: finished
# Cases: 0
# Tests: 0
def total(xs):
    return None
