"""From where on a strategy of an engine pays: the length or the batch at which it begins to win, as measured.

Times in seconds, lengths in tokens. Nothing is extrapolated: between two measured lengths the difference is
taken as linear, and beyond them nothing is said. Pure values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

PaysBy = Literal["first_token", "answer", "batch"]
"""What tells whether a strategy pays: the time until the first token or until the end of an answer, each by
the length of a prompt, or tokens a second by the number of answers at a time.
"""
PREFIX_USED = 0.5
"""Share of a measured prefix from which on usual prompts are compared with those behind it."""

LEAST_GAIN = 0.05
"""Share of an answer's seconds that must be won, as a strategy takes computers from other work."""


@dataclass(frozen=True)
class Speed:
    """How fast one way was."""

    first_s: float
    """Until the first token."""
    tokens_s: float | None
    """Output tokens a second of all answers of the batch; None where they were too short to tell."""

    def seconds(self, output: float) -> float:
        """Until the end of an answer of so many tokens."""
        return self.first_s + (output / self.tokens_s if self.tokens_s else 0.0)


@dataclass(frozen=True)
class Compared:
    """Both ways with the same prompts."""

    known: int
    """Tokens of the prefix that a cache had."""
    new: int
    """Tokens after it."""
    batch: int
    """Answers at a time."""
    direct: Speed
    strategy: Speed


@dataclass(frozen=True)
class UsualPrompts:
    """What prompts and answers of students' work had, medians; without runs, nothing is known."""

    runs: int = 0
    known: float = 0.0
    new: float = 0.0
    output: float = 0.0


@dataclass(frozen=True)
class Advice:
    """Whether a strategy should be on, and from where it pays."""

    on: bool | None
    """None where it depends on prompts of which nothing is known yet."""
    tokens: int | None = None
    """New tokens from which on it pays, at one answer at a time."""
    gain: float | None = None
    """Share of the seconds of usual answers that it wins; negative where it loses."""
    batch: int | None = None
    """Answers at a time from which on the direct way writes as much."""
    full: float | None = None
    """Tokens a second in the largest batch, as a factor of the direct way."""
    longest: int = 0
    """The longest prompt that was measured, in new tokens."""


def advise(
    pays_by: PaysBy, rows: Sequence[Compared], usual: UsualPrompts, computers: int = 1
) -> Advice | None:
    """What the measurements say for these prompts; None where they say nothing.

    A strategy that takes several computers must write as much in a full batch as so many with the direct way.
    """
    if pays_by == "batch":
        return _by_batch(rows)
    alone = [row for row in rows if row.batch == 1]
    known = max((row.known for row in alone), default=0)
    series = [row for row in alone if row.known == (known if _behind_prefix(usual, known) else 0)] or alone
    if not series:
        return None
    writes = usual.output if pays_by == "answer" else 0.0
    tokens, full = crossing(series, writes), _full_batch(rows)
    gain = _gain(series, usual, writes) if usual.runs else None
    on: bool | None = None
    if tokens is None or (full is not None and full < computers):
        on = False
    elif gain is not None:
        on = usual.new >= tokens and gain >= LEAST_GAIN
    return Advice(on, tokens, gain, full=full, longest=max(row.new for row in series))


def _gain(rows: Iterable[Compared], usual: UsualPrompts, writes: float) -> float:
    """Seconds won with a usual prompt, as a share of what a usual answer takes the direct way."""
    ordered = sorted(rows, key=lambda row: row.new)
    won = _at(ordered, usual.new, lambda row: row.direct.seconds(writes) - row.strategy.seconds(writes))
    return won / _at(ordered, usual.new, lambda row: row.direct.seconds(usual.output))


def _at(ordered: Sequence[Compared], new: float, value: Callable[[Compared], float]) -> float:
    """A value at a length, linear between two measured ones; outside, that of the nearest."""
    high = next((place for place, row in enumerate(ordered) if row.new >= new), len(ordered) - 1)
    low = max(0, high - 1)
    if ordered[high].new < new or ordered[high].new == ordered[low].new:
        return value(ordered[high])
    share = max(0.0, (new - ordered[low].new) / (ordered[high].new - ordered[low].new))
    return value(ordered[low]) + share * (value(ordered[high]) - value(ordered[low]))


def _behind_prefix(usual: UsualPrompts, known: int) -> bool:
    """A class shares a prefix; what its prompts really had from the cache decides where that is known."""
    return not usual.runs or usual.known >= PREFIX_USED * known


def crossing(rows: Iterable[Compared], output: float = 0.0) -> int | None:
    """New tokens from which on the strategy is faster at every measured length; None where it never is.

    Where it wins at all lengths, the shortest of them.
    """
    ordered = sorted(rows, key=lambda row: row.new)
    lost = [row.direct.seconds(output) - row.strategy.seconds(output) for row in ordered]
    last = max((place for place, won in enumerate(lost) if won <= 0), default=-1)
    if last == len(ordered) - 1:
        return None
    if last < 0:
        return ordered[0].new
    low, high = ordered[last], ordered[last + 1]
    share = -lost[last] / (lost[last + 1] - lost[last])
    return round(low.new + share * (high.new - low.new))


def _by_batch(rows: Sequence[Compared]) -> Advice | None:
    ordered = sorted((row for row in rows if row.direct.tokens_s), key=lambda row: row.batch)
    one = next((row for row in ordered if row.batch == 1), None)
    if one is None or not one.strategy.tokens_s or not one.direct.tokens_s:
        return None
    alone = one.strategy.tokens_s
    batch = next((row.batch for row in ordered if (row.direct.tokens_s or 0.0) >= alone), None)
    return Advice(alone > one.direct.tokens_s, batch=batch, full=_full_batch(ordered), longest=one.new)


def _full_batch(rows: Sequence[Compared]) -> float | None:
    """Tokens a second of the strategy in the largest measured batch, as a factor of the direct way."""
    last = max((row for row in rows if row.batch > 1), key=lambda row: row.batch, default=None)
    if last is None or not last.direct.tokens_s or not last.strategy.tokens_s:
        return None
    return last.strategy.tokens_s / last.direct.tokens_s
