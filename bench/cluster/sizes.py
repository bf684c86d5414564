"""What a request asks of an emulated machine, and the answer: the same for the same job, whoever sends it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.cluster.asking import Request
from bench.cluster.cards import STAGES, Work
from workers.machine.engines.instant import InstanceMaker

MARK = re.compile(r"job-\d+((?:-[a-z]+\d+)+)")
"""Stands in a hand-in, and says which one it is and how long its answers are."""
CHARS_A_TOKEN = 4
BLANK_RUN = 400
PROSE = "The sky is blue."


def mark(number: int, output: Mapping[str, int]) -> str:
    """What is written into a hand-in; `output` is stage -> tokens of its answer."""
    return f"job-{number}" + "".join(f"-{stage}{tokens}" for stage, tokens in output.items())


def marked(text: str, stage: str) -> int | None:
    """The tokens of the answer that a text with a mark asks for."""
    found = MARK.search(text)
    tokens = re.search(rf"-{stage}(\d+)", found[1]) if found else None
    return int(tokens[1]) if tokens else None


class _Words(InstanceMaker):
    """Small answers with a few words in each text."""

    def string(self, path: tuple[str, ...], low: int, high: int | None) -> str:
        """Some words, as long as allowed."""
        return "A clear first step.".ljust(low, ".")[:high]


@dataclass(frozen=True)
class Asked:
    """A request as it came, whatever it was spoken in."""

    model: str
    system: str
    user: str
    schema: dict[str, Any] | None
    most: int | None
    """Tokens of the answer."""
    stream: bool

    def text(self) -> str:
        """An answer that fits the schema."""
        return json.dumps(_Words(self.schema).make()) if self.schema else PROSE

    def request(self, name: str, works: Mapping[str, Work] = STAGES) -> Request:
        """What the machine gets to do: the usual sizes where it is a job, else those of the texts."""
        text, prefix = self.text(), hashlib.sha256(self.system.encode()).hexdigest()[:16]
        work = next((w for w in works.values() if w.model.name == self.model), None)
        output = marked(self.user, work.stage) if work else None
        if work is None or output is None:
            shared, own = (-(-len(part) // CHARS_A_TOKEN) for part in (self.system, self.user))
            said = self._bounded(len(text) // CHARS_A_TOKEN)
            return Request(name, self.model, max(1, shared + own), said, prefix if shared else "", shared)
        return Request(name, self.model, work.prompt, self._bounded(output), prefix, work.shared)

    def _bounded(self, output: int) -> int:
        return max(1, min(output, self.most) if self.most else output)


def padded(text: str, length: int) -> str:
    """JSON with white space between its parts until it is so long; other texts again and again."""
    missing = length - len(text)
    if missing <= 0:
        return text
    if not text.startswith("{"):
        return (f"{text} " * (length // len(text) + 1))[:length]
    seams = [at.end() for at in re.finditer(r'", |[{]|\], |\}, ', text)] or [1]
    room = min(BLANK_RUN, -(-missing // len(seams)))
    for seam in reversed(seams):
        here = min(room, missing)
        text = text[:seam] + " " * here + text[seam:]
        missing -= here
    return text
