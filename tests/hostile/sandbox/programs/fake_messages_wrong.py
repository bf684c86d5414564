# Tries: messages of wrong shapes, to make the server stumble
# End: finished | left | output | too long
# Cases: <= 1
# Tests: <= 1
import os


def total(xs):
    return sum(xs)


LINES = [
    b"[]", b"null", b"1e999", b'"event"', b'{"event": null}', b'{"event": ["played"]}', b'{"event": "cell"}',
    b'{"event": "cell", "number": "1", "state": "ran"}', b'{"event": "cell", "number": 99, "state": "failed"}',
    b'{"event": "missing", "package": {"a": 1}}', b'{"event": "missing", "package": "' + b"p" * 5000 + b'"}',
    b'{"event": "answer", "state": "value"}', b'{"event": "answer", "state": "value", "value": 6}',
    b'{"event": "answer", "state": "great", "value": {"kind": "number", "text": "6"}}',
    b"[" * 50_000, b'{"a":' * 50_000, b'{"event": "remote", "body": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"event": "cell", "number": NaN}', b'{"event": "played", "event": "end"}', b"\xff\xfe{}", b"\0" * 100,
    b'{"event": "' + b"9" * 5000 + b'", "number": ' + b"9" * 5000 + b"}", b'{"event": "\\ud800"}',
]
for name in os.listdir("/proc/self/fd"):
    if int(name) not in (0, 1, 2):
        for line in LINES:
            try:
                os.write(int(name), line + b"\n")
            except OSError:
                break
