# Tries: an error whose message is endless, has many lines and an evil class
# End: finished | memory
# Cases: 0
# Tests: 0
class Evil(Exception):
    def __str__(self):
        return "line\n" * 2_000_000

    __repr__ = __str__


Evil.__name__ = Evil.__qualname__ = "E\nvil" * 100_000
Evil.__module__ = None


def total(xs):
    raise Evil("\x1b[2J" * 1000)


raise Evil("x")
