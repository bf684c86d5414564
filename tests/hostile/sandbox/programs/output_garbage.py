# Tries: binary garbage, escape sequences, lone surrogates, zero bytes and bidirectional marks as output
# End: finished
# Cases: 1
# Tests: 1
import os
import sys


def total(xs):
    return sum(xs)


sys.stdout.flush()
os.write(1, bytes(range(256)) * 8)
os.write(2, b"\x1b]0;owned\x07\x1b[2J\x1b[999;999H\x9b31m")
print("\u202e gnissap \x00 \x7f")
sys.stdout.buffer.write("\ud800".encode("utf-8", "surrogatepass"))
print("<script>alert(1)</script><img src=x onerror=alert(1)>")
