# Tries: answering in the driver's place from a process of its own, while the driver is stopped
# End: finished | left | output | too long
# Cases: <= 0.25
# Tests: <= 0.4
import json
import os
import signal
import time

SIX = {"kind": "number", "type": "int", "text": "6"}
LINES = [
    {"event": "played"},
    *[{"event": "answer", "state": "value", "value": SIX, "error": "", "printed": ""}] * 8,
    *[{"event": "tested", "file": "test_basket.py", "name": f"test_{n}", "state": "passed"} for n in range(20)],
    {"event": "tests done"},
]
driver = os.getpid()
if os.fork() == 0:
    os.kill(driver, signal.SIGSTOP)
    for line in LINES:
        for name in os.listdir("/proc/self/fd"):
            try:
                os.write(int(name), json.dumps(line).encode() + b"\n")
            except OSError:
                pass
    time.sleep(1)
    os._exit(0)
