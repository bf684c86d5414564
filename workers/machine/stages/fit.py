"""Shortens what does not fit a model's context, by stated rules, and says what was shortened.

The hand-in is a list of pieces. Rules apply in order, each to all pieces it concerns, until everything fits:
outputs first, then cells the student did not touch, then long lines, prose and code, and whole pieces last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from grading.jobs import Material
from grading.model import Flag
from workers.machine.stages.text import clip, head_and_tail

CHARS_PER_TOKEN = 3
"""A careful estimate: code and tables need more tokens a character than prose does."""
DEFAULT_CONTEXT_TOKENS = 32_768
SYSTEM_SHARE = 0.6
"""The most of the context that what a class shares may take."""
_SPARE_TOKENS = 256


@dataclass(frozen=True)
class Piece:
    """A run of finished prompt lines: a heading, the source of a cell, or one output."""

    kind: Literal["heading", "code", "prose", "output"]
    lines: tuple[str, ...]
    added: bool = True
    """Whether the student wrote some of it."""

    @property
    def size(self) -> int:
        """Characters, newlines counted."""
        return sum(map(len, self.lines)) + len(self.lines)


def room(context_tokens: int, max_output_tokens: int) -> int:
    """Characters for both messages: the answer needs its place, and a repair try repeats the first answer."""
    return max(0, context_tokens - 2 * max_output_tokens - _SPARE_TOKENS) * CHARS_PER_TOKEN


def _cut_lines(piece: Piece, keep: int, width: int) -> Piece:
    return replace(piece, lines=head_and_tail(tuple(clip_line(line, width) for line in piece.lines), keep))


def clip_line(line: str, width: int) -> str:
    """A line of at most about `width` characters; leading blanks stay."""
    return line if len(line) <= width else f"{line[:width]}[… {len(line) - width} characters left out …]"


def _one_line(piece: Piece) -> Piece:
    return replace(piece, lines=(f"[{len(piece.lines)} lines exactly as in the starter]",))


@dataclass(frozen=True)
class _Rule:
    sentence: str
    concerns: Callable[[Piece], bool]
    shorten: Callable[[Piece], Piece]


_RULES = (
    _Rule(
        "{n} long outputs were cut to their beginning and end",
        lambda p: p.kind == "output",
        lambda p: _cut_lines(p, 40, 240),
    ),
    _Rule(
        "{n} outputs were cut to eight lines",
        lambda p: p.kind == "output",
        lambda p: _cut_lines(p, 8, 160),
    ),
    _Rule(
        "{n} cells the student left as in the starter were reduced to one line",
        lambda p: p.kind in ("code", "prose") and not p.added and len(p.lines) > 1,
        _one_line,
    ),
    _Rule(
        "very long lines were cut in {n} places",
        lambda p: p.kind in ("code", "prose"),
        lambda p: _cut_lines(p, len(p.lines), 500),
    ),
    _Rule(
        "the middle of {n} long texts was left out",
        lambda p: p.kind == "prose",
        lambda p: _cut_lines(p, 30, 500),
    ),
    _Rule(
        "the middle of {n} long pieces of code was left out",
        lambda p: p.kind == "code",
        lambda p: _cut_lines(p, 60, 300),
    ),
)


def _drop_middle(pieces: list[Piece], limit: int) -> tuple[list[Piece], int]:
    """Leave out whole pieces around the middle until the rest fits; a line marks the gap."""
    gap = Piece("heading", ("[… the middle of the hand-in is left out …]",), added=False)
    low = high = len(pieces) // 2
    size = sum(p.size for p in pieces) + gap.size
    while size > limit and (low > 0 or high < len(pieces)):
        if high < len(pieces) and (len(pieces) - high >= low or low == 0):
            size -= pieces[high].size
            high += 1
        else:
            low -= 1
            size -= pieces[low].size
    return [*pieces[:low], gap, *pieces[high:]], high - low


def fit_pieces(pieces: tuple[Piece, ...], limit: int) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """The pieces within `limit` characters, and a clause for each rule that was needed."""
    current = list(pieces)
    clauses: list[str] = []
    for rule in _RULES:
        if sum(p.size for p in current) <= limit:
            break
        shorter = [rule.shorten(p) if rule.concerns(p) else p for p in current]
        changed = sum(a != b for a, b in zip(current, shorter, strict=True))
        if changed:
            clauses.append(rule.sentence.format(n=changed))
        current = shorter
    if sum(p.size for p in current) > limit:
        current, dropped = _drop_middle(current, limit)
        clauses.append(f"{dropped} pieces in the middle of the hand-in were left out")
    return tuple(current), tuple(clauses)


def fit_material(material: Material, over: int) -> tuple[Material, tuple[str, ...]]:
    """What the class shares, about `over` characters shorter: the solution first, then starter, then task."""
    clauses: list[str] = []
    for name in ("solution", "starter", "task"):
        text = str(getattr(material, name))
        if over <= 0 or len(text) <= 400:
            continue
        keep = max(400, len(text) - over - 60)
        shorter = f"{clip(text[: keep * 2 // 3], keep)}\n[… left out …]\n{text[len(text) - keep // 3 :]}"
        if len(shorter) >= len(text):
            continue
        over -= len(text) - len(shorter)
        material = material.model_copy(update={name: shorter})
        clauses.append(f"the middle of the {name} was left out")
    return material, tuple(clauses)


def shortened_flag(clauses: tuple[str, ...]) -> tuple[Flag, ...]:
    """One flag that tells a person what the model did not see, or none."""
    if not clauses:
        return ()
    return (Flag(code="shortened", message=f"To fit the model's context, {'; '.join(clauses)}."),)
