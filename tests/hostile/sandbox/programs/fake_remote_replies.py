# Tries: forged answers to the tests' calls: errors that end or skip a run, callbacks, changed arguments, odd kinds
# End: finished | left | too long
# Cases: 0
# Tests: 0
import json
import os


def builtin(name):
    return {"raised": {"c": {"t": "builtin", "n": name}, "a": [0], "s": "x", "d": {"code": 0, "__class__": 1}}}


BODIES = [
    builtin("SystemExit"),
    builtin("KeyboardInterrupt"),
    {"raised": {"c": {"t": "handle", "id": 1, "n": "SkipTest", "bases": [{"t": "builtin", "n": "BaseException"}]},
                "a": [], "s": "not today", "d": {}}},
    {"ok": {"t": "_eq__"}},
    {"ok": {"t": "_init__"}},
    {"callback": "input", "a": [], "k": {}},
    {"changed": {"0": [6], "1": 6, "self": 6}, "ok": {"t": "handle", "id": 7, "n": "int", "class": True}},
    {"ok": {"t": "ndarray", "d": "V9999999999", "s": [9999999], "v": [1]}},
    {"ok": {"t": "named", "n": "x(__import__('os'))", "f": ["a", "exec('1')"], "v": [1, 2]}},
    {"gone": True, "ok": 6},
] * 2
text = "".join(json.dumps({"event": "remote", "body": body}) + "\n" for body in BODIES).encode()


def flood():
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.write(int(name), text)
            except OSError:
                pass


def __getattr__(name):
    if name == "total" and os.path.exists("/tmp/asked"):
        flood()
    raise AttributeError(name)


flood()


class Total:
    def __call__(self, xs):
        flood()
        return None


total = Total()
