# Tries: a million small files
# End: finished | too long | memory | left
# Cases: <= 1
# Tests: -
def total(xs):
    return sum(xs)


for number in range(1_000_000):
    with open(f"/tmp/{number}", "w") as file:
        file.write("x")
