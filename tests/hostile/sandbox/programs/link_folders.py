# Tries: putting a link in place of its own folder and of the files that the server might read later
# End: finished
# Cases: 1
# Tests: -
import os
import shutil


def total(xs):
    return sum(xs)


for name in ("/box", "/tmp", "/data", "/box/data"):
    try:
        os.rename(name, name + "-old")
        os.symlink("@FOLDER@", name)
        if name != "/box/data":  # its own copy of the folder; the files in it are not
            print("@REACHED@", name)
    except OSError as error:
        print(error)
try:
    shutil.rmtree("/box/data")
    os.symlink("@FOLDER@", "/box/data")
except OSError as error:
    print(error)
