"""Shortens what does not fit a model's context, by stated rules, and says what was shortened.

The submission is a list of pieces. Rules apply in order, each to the pieces that gain most by it and to no
more of them than it takes: outputs first, then cells the student did not touch, then long lines, prose and
code, and whole pieces last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from grading.checks.message_parts import clauses
from grading.domain.evidence import Flag
from grading.domain.jobs import Material
from grading.domain.messages import Message, MessageType
from workers.machine.messages import (
    EXAMPLES_LEFT_OUT,
    LONG_CODE_CUT,
    LONG_LINES_CUT,
    LONG_OUTPUTS_CUT,
    LONG_TEXTS_CUT,
    OUTPUTS_CUT,
    PIECES_LEFT_OUT,
    SHORTENED,
    SOLUTION_CUT,
    STARTER_CUT,
    TASK_CUT,
    UNTOUCHED_CELLS_CUT,
)
from workers.machine.sanitize import clip, head_and_tail

CHARS_PER_TOKEN = 3
"""A careful estimate: code and tables need more tokens a character than prose does."""
DEFAULT_CONTEXT_TOKENS = 32_768
SYSTEM_SHARE = 0.6
"""The most of the context that what a class shares may take."""
_SPARE_TOKENS = 320
"""For the marks that a chat template puts around messages, and for the words of a repair try."""
_SHORTEST = 400
"""Characters of a shared text that are never taken away."""
Measure = Callable[[str], int]


@dataclass(frozen=True)
class Budget:
    """Room for both messages, in units of `measure`: tokens, or thirds of them where they are estimated."""

    room: int
    measure: Measure
    units: int
    """Units of a token."""

    def tokens(self, size: int) -> int:
        """A size as tokens, rounded up."""
        return -(-size // self.units)


def budget(context_tokens: int, max_output_tokens: int, count: Measure | None = None) -> Budget:
    """What a context leaves beside an answer and its repetition in a repair try.

    `count` is the model's own tokenizer's; without it tokens are estimated from above.
    """
    left = max(0, context_tokens - 2 * max_output_tokens - _SPARE_TOKENS)
    return Budget(left, count, 1) if count is not None else Budget(left * CHARS_PER_TOKEN, weight, 3)


def weight(text: str) -> int:
    """Estimated tokens × 3: one for each ASCII character, three for each byte of any other.

    Tokenizers fall back to bytes for what they do not know, so no script and no emoji needs more.
    """
    if text.isascii():
        return len(text)
    ascii_chars = len(text.encode("ascii", "ignore"))
    return ascii_chars + CHARS_PER_TOKEN * (len(text.encode("utf-8", "replace")) - ascii_chars)


@dataclass(frozen=True)
class Piece:
    """A run of finished prompt lines: a heading, the source of a cell, or one output."""

    kind: Literal["heading", "code", "prose", "output"]
    lines: tuple[str, ...]
    added: bool = True
    """Whether the student wrote some of it."""

    @property
    def text(self) -> str:
        """The lines, each with its end."""
        return "".join(f"{line}\n" for line in self.lines)


def _cut_lines(piece: Piece, keep: int, width: int) -> Piece:
    return replace(piece, lines=head_and_tail(tuple(clip_line(line, width) for line in piece.lines), keep))


def clip_line(line: str, width: int) -> str:
    """A line of at most about `width` characters; leading blanks stay."""
    return line if len(line) <= width else f"{line[:width]}[… {len(line) - width} characters left out …]"


def _one_line(piece: Piece) -> Piece:
    return replace(piece, lines=(f"[{len(piece.lines)} lines exactly as in the starter]",))


@dataclass(frozen=True)
class _Rule:
    clause: MessageType
    concerns: Callable[[Piece], bool]
    shorten: Callable[[Piece], Piece]


_RULES = (
    _Rule(
        LONG_OUTPUTS_CUT,
        lambda p: p.kind == "output",
        lambda p: _cut_lines(p, 40, 240),
    ),
    _Rule(
        OUTPUTS_CUT,
        lambda p: p.kind == "output",
        lambda p: _cut_lines(p, 8, 160),
    ),
    _Rule(
        UNTOUCHED_CELLS_CUT,
        lambda p: p.kind in ("code", "prose") and not p.added and len(p.lines) > 1,
        _one_line,
    ),
    _Rule(
        LONG_LINES_CUT,
        lambda p: p.kind in ("code", "prose"),
        lambda p: _cut_lines(p, len(p.lines), 500),
    ),
    _Rule(
        LONG_TEXTS_CUT,
        lambda p: p.kind == "prose",
        lambda p: _cut_lines(p, 30, 500),
    ),
    _Rule(
        LONG_CODE_CUT,
        lambda p: p.kind == "code",
        lambda p: _cut_lines(p, 60, 300),
    ),
)


def fit_pieces(
    pieces: Sequence[Piece], limit: int, measure: Measure = weight
) -> tuple[tuple[Piece, ...], tuple[Message, ...]]:
    """The pieces within `limit`, measured one by one, and a clause for each rule that was needed."""
    current = list(pieces)
    sizes = [measure(piece.text) for piece in current]
    said: list[Message] = []
    for rule in _RULES:
        over = sum(sizes) - limit
        if over <= 0:
            break
        changed = 0
        for gain, at, shorter in sorted(_gains(rule, current, sizes, measure), key=lambda one: -one[0]):
            if over <= 0:
                break
            current[at] = shorter
            sizes[at] -= gain
            over -= gain
            changed += 1
        if changed:
            said.append(rule.clause(count=changed))
    if sum(sizes) > limit:
        current, dropped = _drop_middle(current, sizes, limit, measure)
        said.append(PIECES_LEFT_OUT(count=dropped))
    return tuple(current), tuple(said)


def _gains(
    rule: _Rule, pieces: list[Piece], sizes: list[int], measure: Measure
) -> Iterator[tuple[int, int, Piece]]:
    """What a rule saves, at which piece, and the piece after it."""
    for at, piece in enumerate(pieces):
        if rule.concerns(piece) and (shorter := rule.shorten(piece)) != piece:
            gain = sizes[at] - measure(shorter.text)
            if gain > 0:
                yield gain, at, shorter


def _drop_middle(
    pieces: list[Piece], sizes: list[int], limit: int, measure: Measure
) -> tuple[list[Piece], int]:
    """Leave out whole pieces around the middle until the rest fits; a line marks the gap."""
    gap = Piece("heading", ("[… the middle of the hand-in is left out …]",), added=False)
    low = high = len(pieces) // 2
    size = sum(sizes) + measure(gap.text)
    while size > limit and (low > 0 or high < len(pieces)):
        if high < len(pieces) and (len(pieces) - high >= low or low == 0):
            size -= sizes[high]
            high += 1
        else:
            low -= 1
            size -= sizes[low]
    return [*pieces[:low], gap, *pieces[high:]], high - low


def fit_material(
    material: Material, excess: Callable[[Material], int]
) -> tuple[Material, tuple[Message, ...]]:
    """What the class shares, no shorter than it must be.

    Whole examples go first, from the last one on; then the solution is cut, then the starter, then the task.

    `excess` says how much too long the whole is with a material; 0 or less when it fits.
    """
    material, left_out = _fewer_examples(material, excess)
    said = [EXAMPLES_LEFT_OUT(count=left_out)] if left_out else []
    for name, clause in (("solution", SOLUTION_CUT), ("starter", STARTER_CUT), ("task", TASK_CUT)):
        if excess(material) <= 0:
            break
        text = str(getattr(material, name))
        if len(text) <= _SHORTEST:
            continue
        shorter = _longest(material, name, text, excess)
        if len(getattr(shorter, name)) < len(text):
            material = shorter
            said.append(clause())
    return material, tuple(said)


def _fewer_examples(material: Material, excess: Callable[[Material], int]) -> tuple[Material, int]:
    """The material with as many of its examples as fit, and how many were left out."""
    left_out = 0
    while material.examples and excess(material) > 0:
        material = material.model_copy(update={"examples": material.examples[:-1]})
        left_out += 1
    return material, left_out


def _longest(material: Material, name: str, text: str, excess: Callable[[Material], int]) -> Material:
    """The material with as much of one text as fits, or its shortest form where nothing does."""

    def with_only(keep: int) -> Material:
        start, end = clip(text[: keep * 2 // 3], keep), text[len(text) - keep // 3 :]
        return material.model_copy(update={name: f"{start}\n[… left out …]\n{end}"})

    low, high = _SHORTEST, len(text)
    while high - low > 16:
        middle = (low + high) // 2
        if excess(with_only(middle)) <= 0:
            low = middle
        else:
            high = middle
    return with_only(low)


def shortened_flag(said: tuple[Message, ...]) -> tuple[Flag, ...]:
    """One flag that tells a person what the model did not see, or none."""
    return (Flag.of("shortened", SHORTENED(clauses=clauses(said))),) if said else ()
