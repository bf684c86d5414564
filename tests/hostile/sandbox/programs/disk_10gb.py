# Tries: a file of 10 GB
# End: finished | memory | left
# Cases: 1
# Tests: -
def total(xs):
    return sum(xs)


written = 0
try:
    with open("big", "wb") as file:
        while written < 10 << 30:
            written += file.write(b"x" * (1 << 20))
            if written > 1 << 30:
                print("@REACHED@ 1 GB on disk")
                break
except OSError as error:
    print(error)
