# Tries: blocking every signal before an endless loop
# End: too long
# Cases: 0
# Tests: -
# Seconds: 0.7
import signal

signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True:
    pass
