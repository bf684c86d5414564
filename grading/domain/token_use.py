"""What an API token used of a model on a day, as Redis counts it and SQL stores it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import NamedTuple


class UseKey(NamedTuple):
    """What is counted together."""

    token_id: int
    model: str
    day: date


@dataclass(frozen=True)
class Use:
    """Requests answered, and their tokens."""

    requests: int = 0
    prompt: int = 0
    output: int = 0
