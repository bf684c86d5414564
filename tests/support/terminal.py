"""A command at a terminal of its own, whose questions are answered as a person would."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator, Mapping

UNANSWERED_S = 90.0
"""Longest that a question may stand there; what works that long says so in whole lines."""
OWN_TERMINAL = ("setsid", "--ctty", "--wait")


def converse(command: list[str], answers: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """Exit status and all that was said; a question that contains a key of `answers` is answered."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*OWN_TERMINAL, *command], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said, heard = "", 0
    try:
        for part in _parts(ours, seconds):
            said += part
            question = said[heard:]
            found = next((key for key in answers if key in question and not question.endswith("\n")), None)
            if found is not None:
                os.write(ours, answers[found].encode() + b"\n")
                heard = len(said)
        return process.wait(seconds), said.replace("\r\n", "\n")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _parts(terminal: int, seconds: float) -> Iterator[str]:
    """What is said, until nobody is left to say something."""
    end = time.monotonic() + seconds
    said = b"\n"
    while (left := end - time.monotonic()) > 0:
        asked = not said.endswith(b"\n")
        if not select.select([terminal], [], [], min(left, UNANSWERED_S) if asked else left)[0]:
            raise TimeoutError(f"nobody answers: {said[-500:].decode(errors='replace')}")
        try:
            said = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            return
        yield said.decode(errors="replace")
    raise TimeoutError(f"still at work: {said[-500:].decode(errors='replace')}")
