# Tries: kernel memory through the buffers of many pipes and sockets
# End: memory | finished | left
# Cases: 1
# Tests: -
import fcntl
import os


def total(xs):
    return sum(xs)


held = []
filled = 0
try:
    for _ in range(600):
        reading, writing = os.pipe()
        held += [reading, writing]
        os.set_blocking(writing, False)
        try:
            fcntl.fcntl(writing, 1031, 1 << 20)
            filled += os.write(writing, b"x" * (1 << 20))
        except OSError:
            pass
except OSError:
    pass
if filled > 256 << 20:
    print("@REACHED@", filled)
for fd in held:
    os.close(fd)
