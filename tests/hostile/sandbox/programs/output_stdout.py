# Tries: endless output
# End: output | finished | too long
# Cases: <= 1
# Tests: -
def total(xs):
    return sum(xs)


while True:
    print("all work and no play " * 50)
