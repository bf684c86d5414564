# Tries: an endless loop after an honest solution
# End: finished | too long
# Cases: <= 1
# Tests: -
def total(xs):
    return sum(xs)


while True:
    pass
