# Tries: changing the data that every submission of the class is run with
# End: finished
# Cases: 1
# Tests: -
import glob
import os


def total(xs):
    return sum(xs)


for path in glob.glob("/data/*") + glob.glob("/box/data/*") + ["/box/prices.csv"]:
    for change in (lambda: open(path, "a").write("x"), lambda: os.chmod(path, 0o777), lambda: os.remove(path),
                   lambda: os.rename("/box/basket.txt", path), lambda: os.truncate(path, 0), lambda: os.utime(path)):
        try:
            change()
            print("@REACHED@ changed", path)
        except OSError as error:
            print(error.errno, end=" ")
