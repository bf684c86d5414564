# Tries: names of files with line breaks, escapes, options and no meaning
# End: finished
# Cases: 1
# Tests: 1
import os


def total(xs):
    return sum(xs)


for name in (b"a\nb", b"-rf", b"\xff\xfe", b"..\\..\\x", b"x" * 255, "\u202egnp.exe".encode(), b"$(touch x)"):
    os.close(os.open(b"/box/" + name, os.O_CREAT | os.O_WRONLY))
os.chmod("/box", 0)
