"""Canary words in a prompt: an answer that repeats them leaked the prompt, and is cleaned.

A model that repeats its instructions because a submission asked it to repeats them, too: the code of the
fence, and a word that stands before the fence for this alone.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from grading.domain.evidence import Flag
from grading.domain.jobs import Job
from workers.machine.messages import PROMPT_LEAKED

_SHORTEST = 8
"""Shorter codes may stand in ordinary words; those of real jobs are longer."""
LEAKED = Flag.of("prompt_leaked", PROMPT_LEAKED(), hold=True)


def canary(job: Job) -> str:
    """The job's word, as random as its nonce and not to be guessed from it by who reads only one of them."""
    return hashlib.sha256(f"canary {job.nonce}".encode()).hexdigest()[:12]


def leaked(answer: str, job: Job) -> bool:
    """Whether an answer holds the canary or the nonce, beside what a model thinks before it answers."""
    body = answer.rpartition("</think>")[2].lower()
    return any(word in body for word in _words(job))


def without(value: Any, job: Job) -> Any:
    """A JSON value without those words in its texts."""
    if isinstance(value, str):
        for word in _words(job):
            if value.isascii() and word not in value.lower():
                continue  # to make a pattern of it costs more
            value = re.sub(re.escape(word), "", value, flags=re.IGNORECASE)
        return value
    if isinstance(value, dict):
        return {key: without(part, job) for key, part in value.items()}
    return [without(part, job) for part in value] if isinstance(value, list | tuple) else value


def _words(job: Job) -> tuple[str, ...]:
    return tuple(word.lower() for word in (canary(job), job.nonce) if len(word) >= _SHORTEST)
