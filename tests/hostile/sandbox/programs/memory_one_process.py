# Tries: taking all memory in one process
# End: memory | finished | left
# Cases: <= 1
# Tests: -
def total(xs):
    return sum(xs)


hoard = []
for _ in range(200):
    hoard.append(bytearray(b"x") * (4 << 20))
