# Tries: an import of a package that nobody has, in the hope that the failure is not counted
# End: finished
# Cases: 0
# Tests: 0
import a_package_that_nobody_has


def total(xs):
    return a_package_that_nobody_has.total(xs)
