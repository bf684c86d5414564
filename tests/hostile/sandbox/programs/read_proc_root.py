# Tries: the machine's files through the root, folder and descriptors of process 1, and through ..
# End: finished
# Cases: 1
# Tests: -
import glob
import os


def total(xs):
    return sum(xs)


for start in ("/proc/1/root", "/proc/1/cwd", "/proc/self/root/../..", "/proc/@SENTINEL@/root", "/../../..", "/oldroot"):
    for name in ("@FOLDER@/outside.txt", "@FOLDER@/var/grader.db", "/etc/shadow"):
        try:
            with open(start + name, "rb") as file:
                print(start, file.read())
        except OSError as error:
            print(error.errno, end=" ")
for path in glob.glob("/proc/*/fd/*"):
    try:
        target = os.readlink(path)
        if target.startswith("/") and not target.startswith(("/dev", "/proc", "/box", "/tmp", "/usr", "/grader")):
            print(target)
            with open(path, "rb") as file:
                print(file.read(10_000))
    except OSError:
        pass
