# Tries: endless output on every file descriptor there is
# End: output | finished | too long | left
# Cases: 0
# Tests: -
import os

fds = [int(name) for name in os.listdir("/proc/self/fd")]
for fd in fds:
    try:
        os.set_blocking(fd, False)
    except OSError:
        pass
while True:
    for fd in fds:
        try:
            os.write(fd, b"garbage \x00\xff\x1b[2J" * 4096)
        except OSError:
            pass
