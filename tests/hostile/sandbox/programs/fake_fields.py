# Tries: messages of the right shape with contents that nobody can store: lone surrogates, zero bytes, megabytes
# End: finished | left | output | too long
# Cases: <= 1
# Tests: -
import json
import os


def total(xs):
    return sum(xs)


BIG = "x" * 300_000
LINES = [
    {"event": "missing", "package": "\ud800"},
    {"event": "missing", "package": "a\0b"},
    {"event": "missing", "package": "\x1b[2J\n<script>"},
    {"event": "cell", "number": 1, "state": "failed", "error": "\ud800\0" * 10, "seconds": -1e308, "line": -5},
    {"event": "cell", "number": 1, "state": "failed", "error": BIG, "outputs": [{"kind": "error", "text": BIG}] * 3},
    {"event": "cell", "number": 1, "state": "ran", "seconds": 1e308, "line": 10**30},
]
text = "".join(json.dumps(line) + "\n" for line in LINES).encode()
text += b'{"event": "missing", "package": "\xed\xa0\x80"}\n' + '{"event": "missing", "package": "\ud800"}'.encode("utf-16", "surrogatepass") + b"\n"
for name in os.listdir("/proc/self/fd"):
    if int(name) > 2:
        try:
            os.write(int(name), text)
        except OSError:
            pass
