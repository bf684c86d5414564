# Tries: objects that say they are of another class, and classes named like others
# End: finished
# Cases: <= 0.25
# Tests: <= 0.4
class Pretends:
    def __init__(self, value):
        self.value = value

    @property
    def __class__(self):
        return int

    def __int__(self):
        return 6

    __index__ = __int__

    def __eq__(self, other):
        return True

    __hash__ = None


Pretends.__name__ = Pretends.__qualname__ = "int"
Pretends.__module__ = "builtins"


def total(xs):
    return Pretends(6)
