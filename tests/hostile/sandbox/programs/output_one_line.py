# Tries: one line of 60 MB without an end, on stdout and as a JSON line to every descriptor
# End: output | finished | memory | left | too long
# Cases: 0
# Tests: -
import os
import sys

sys.stdout.write("x" * (60 << 20))
for fd in range(1, 16):
    try:
        os.write(fd, b'{"event": "answer", "value": "' + b"x" * (1 << 20))
    except OSError:
        pass
