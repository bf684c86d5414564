# Tries: memory through files in every writable folder
# End: memory | finished | left
# Cases: <= 1
# Tests: -
import os


def total(xs):
    return sum(xs)


written = 0
for folder in ("/tmp", "/box", "/dev/shm", "/run", "/var/tmp", "/"):
    try:
        with open(os.path.join(folder, "hoard"), "wb") as file:
            for _ in range(40):
                written += file.write(b"x" * (16 << 20))
    except OSError:
        pass
if written > 400 << 20:
    print("@REACHED@", written)
