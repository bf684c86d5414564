# Tries: endless output inside the function
# End: finished | output | too long
# Cases: 0
# Tests: 0
# Seconds: 2
def total(xs):
    while True:
        print("x" * 65536)
