# Tries: a value of 50 MB, one that nests without an end, one that holds itself
# End: finished | memory | output | too long | left
# Cases: 0
# Tests: 0
def total(xs):
    xs = list(xs)
    if len(xs) == 0:
        return "x" * (20 << 20)
    if len(xs) == 1:
        deep = []
        for _ in range(200_000):
            deep = [deep]
        return deep
    if len(xs) == 2:
        ring = {}
        ring["ring"] = [ring]
        return ring
    return ["\ud800", float("nan"), 10**5000, b"\xff", {(1, 2): {3}}, object(), total] * 1000
