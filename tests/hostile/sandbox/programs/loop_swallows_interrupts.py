# Tries: an endless loop that swallows KeyboardInterrupt and everything else
# End: too long | finished
# Cases: <= 1
# Tests: -
# Seconds: 0.7
def total(xs):
    return sum(xs)


while True:
    try:
        while True:
            pass
    except BaseException:
        continue
