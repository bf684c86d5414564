"""Named details of a run that its engine reports: which strategy it used, why, and what it measured.

Nothing here knows any name: what an engine reports is stored, sent and shown as it comes. Machines are not
trusted, so names and sizes are bounded. An engine's package may declare words for its names as messages of
`grading.domain.messages`, with the codes that the functions here give; without them the names are shown.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from grading.domain.base_value import Value
from grading.domain.messages import Message

MAX_DETAILS = 8
MAX_MEASUREMENTS = 32

DetailName = Annotated[str, StringConstraints(pattern=r"^[a-z_]+$", max_length=40)]
Unit = Annotated[str, StringConstraints(pattern=r"^[A-Za-z%/]*$", max_length=12)]
"""Such as `s`, `bytes`, `bits`, `tokens`; empty for texts and bare numbers."""
Text = Annotated[str, StringConstraints(max_length=200)]


class Measurement(Value):
    """A number with its unit, or a text."""

    value: int | float | Text
    unit: Unit = ""


class Detail(Value):
    """What an engine reports under one name."""

    strategy: DetailName
    """Which way the engine took."""
    reason: Message = Message()
    """Why it took that way."""
    values: dict[DetailName, Measurement] = Field(default_factory=dict, max_length=MAX_MEASUREMENTS)


Details = Annotated[dict[DetailName, Detail], Field(max_length=MAX_DETAILS)]
"""By name, such as `speculative`."""


def title_code(detail: str) -> str:
    """The code of the message that is a detail's title."""
    return f"detail.{detail}"


def strategy_code(detail: str, strategy: str) -> str:
    """The code of the message that says in words which strategy that is."""
    return f"detail.{detail}.strategy.{strategy}"


def label_code(detail: str, measurement: str) -> str:
    """The code of the message that labels a measurement."""
    return f"detail.{detail}.value.{measurement}"
