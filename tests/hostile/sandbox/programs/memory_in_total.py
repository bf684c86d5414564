# Tries: taking all memory in one test; the others must still count where the box lives on
# End: finished | memory
# Cases: <= 0.875
# Tests: <= 1
def total(xs):
    xs = list(xs)
    if len(xs) == 100:
        return len(bytearray(b"x") * (1 << 30))
    return sum(xs)
