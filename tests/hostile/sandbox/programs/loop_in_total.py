# Tries: a function that never returns, so that every test costs all the time it has
# End: finished | too long
# Cases: 0
# Tests: 0
# Seconds: 1
def total(xs):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
