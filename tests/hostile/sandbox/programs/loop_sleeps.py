# Tries: sleeping for an hour, again after every interruption
# End: too long | finished
# Cases: 0
# Tests: -
# Seconds: 1
import time

while True:
    try:
        time.sleep(3600)
    except BaseException as error:
        print("slept on", type(error))
