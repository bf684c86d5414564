# Tries: heartbeats without an end, so that whoever waits for an answer waits for ever
# End: too long | output
# Cases: 0
# Tests: -
# Seconds: 1
import os
import signal
import time

signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))

fds = []
for name in os.listdir("/proc/self/fd"):
    if os.path.exists(f"/proc/self/fd/{name}") and int(name) > 2:
        fds.append(int(name))
while True:
    for fd in fds:
        try:
            os.write(fd, b'{"event": "cell", "number": 1, "state": "ran"}\n{"event": "missing", "package": "x"}\n')
        except BaseException:
            pass
    try:
        time.sleep(0.02)
    except BaseException:
        pass
