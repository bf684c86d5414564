# Tries: changing the drivers, the interpreter and its packages for those who come later
# End: finished
# Cases: 1
# Tests: -
import glob
import os
import sys
import sysconfig


def total(xs):
    return sum(xs)


for folder in ("/grader", sys.prefix, sysconfig.get_paths()["purelib"], "/usr/lib", "/etc", "/bin"):
    try:
        with open(os.path.join(folder, "sitecustomize.py"), "w") as file:
            file.write("# left by a test of the sandbox\n")
        print("@REACHED@", folder)
    except OSError as error:
        print(error)
for path in glob.glob("/grader/*") + [sys.executable, os.__file__]:
    # nothing is changed where it works, so that no machine is harmed
    for change in (lambda: open(path, "ab").close(), lambda: os.chmod(path, os.stat(path).st_mode)):
        try:
            change()
            print("@REACHED@", path)
        except OSError as error:
            print(error.errno, end=" ")
