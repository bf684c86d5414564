# Tries: writing outside through symbolic links, hard links and /proc
# End: finished
# Cases: 1
# Tests: -
import os


def total(xs):
    return sum(xs)


outside = "@FOLDER@/outside.txt"
for make, name in ((os.symlink, "soft"), (os.link, "hard")):
    try:
        make(outside, name)
        with open(name, "a") as file:
            file.write("overwritten")
        print("@REACHED@", name)
    except OSError as error:
        print(error)
for path in (outside, "/proc/self/root" + outside, "/box/../.." + outside):
    try:
        with open(path, "a") as file:
            file.write("overwritten")
        print("@REACHED@", path)
    except OSError as error:
        print(error)
os.symlink("/etc/shadow", "out.txt")
os.symlink("@FOLDER@/var/grader.db", "plot.png")
