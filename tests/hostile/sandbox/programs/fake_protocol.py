# Tries: printing the answers of a driver on every descriptor, before anybody asked
# End: finished | left | output | too long
# Cases: <= 0.25
# Tests: <= 0.4
import json
import os

SIX = {"kind": "number", "type": "int", "text": "6"}
LINES = [
    {"event": "cell", "number": 1, "state": "ran", "outputs": [], "error": "", "line": None, "seconds": 0.1},
    {"event": "played"},
    *[{"event": "answer", "state": "value", "value": SIX, "error": "", "printed": ""}] * 40,
    *[{"event": "tested", "file": "test_basket.py", "name": f"test_{n}", "state": "passed"} for n in range(20)],
    {"event": "tests done"},
    *[{"event": "remote", "body": {"value": 6, "state": "value", "result": 6, "ok": True}}] * 20,
]
text = "".join(json.dumps(line) + "\n" for line in LINES).encode()
for name in os.listdir("/proc/self/fd"):
    try:
        os.write(int(name), text)
    except OSError:
        pass
