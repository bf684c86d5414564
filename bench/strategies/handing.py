"""The hand-off itself: what passes after the end of reading, and what sending while reading wins."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.engines_parts import Spread
from bench.strategies.arithmetic import Costs
from bench.strategies.sides import Ask, Made, Read, Side

MOST_TAIL = 0.05
"""Of the seconds of reading: from its end to the first token, where the link is not the limit."""
MOST_OFF = 0.10
"""By how much what overlapping wins may differ from the arithmetic."""
FREE = "free"
WRITES = 8
"""Tokens of an answer: only the first matters here."""


@dataclass(frozen=True)
class Tail:
    """Where the link is not the limit."""

    prompt: int
    read_s: Spread
    tail_s: Spread
    """From the end of the last pass, by the reader's clock, to the first token, by the writer's."""
    share: Spread
    """Of the seconds of reading."""

    @property
    def met(self) -> bool:
        """Whether it is as short as it should be."""
        return self.share.median <= MOST_TAIL


@dataclass(frozen=True)
class Gain:
    """Serial and overlapped over one link; seconds until the first token."""

    sending: float
    """Seconds of sending to those of reading, as the link was set."""
    link_bytes_s: float
    serial_s: Spread
    overlapped_s: Spread
    reckoned_serial_s: float
    reckoned_overlapped_s: float

    @property
    def gain(self) -> float:
        """Serial to overlapped, of the medians."""
        return self.serial_s.median / self.overlapped_s.median

    @property
    def reckoned(self) -> float:
        """The same by arithmetic."""
        return self.reckoned_serial_s / self.reckoned_overlapped_s

    @property
    def met(self) -> bool:
        """Whether overlapping wins what the arithmetic says."""
        return abs(self.gain / self.reckoned - 1) <= MOST_OFF


@dataclass(frozen=True)
class Link:
    """One rate, with the names of the engine for either way."""

    sending: float
    bytes_s: float
    serial: str
    overlapped: str


def hand_off(
    sides: tuple[Side, Side],
    text: str,
    factors: Sequence[float],
    turns: Callable[[], Iterator[int]],
    say: Callable[[str], None],
) -> tuple[Tail, list[Gain]]:
    """Measure both, in turn within one run."""
    a, b = sides
    ask = Ask(text, WRITES)
    b.engine(FREE, a.serve(FREE))
    warm = [_free(sides, ask) for _ in range(3)][1:]
    links = [_link(sides, warm, factor) for factor in factors]
    for link in links:
        for name in (link.serial, link.overlapped):
            b.answer(name, ask)
    free: list[tuple[Made, Read]] = []
    shots: dict[str, list[Made]] = {name: [] for link in links for name in (link.serial, link.overlapped)}
    for name in shots:
        a.read(name)  # of the warm-up
    for turn in turns():
        free.append(_free(sides, ask))
        for name in shots if turn % 2 else reversed(shots):
            shots[name].append(b.answer(name, ask))
        say(f"  turn {turn + 1}: tail {_tails(free)[-1]:.1%} of reading")
    reads = [read for name in shots for read in a.read(name)] + [read for _, read in free]
    tail = Tail(
        prompt=free[0][0].prompt,
        read_s=Spread.of([read.seconds for _, read in free]),
        tail_s=Spread.of([made.first - read.passes[-1] for made, read in free]),
        share=Spread.of(_tails(free)),
    )
    return tail, [_gain(link, costs(free, reads, link.bytes_s), shots) for link in links]


def costs(free: Sequence[tuple[Made, Read]], reads: Sequence[Read], bytes_s: float) -> Costs:
    """What a hand-off over a link of this rate should cost, by medians.

    `reads` are all readings of the run, `free` those over a link that is no limit: they tell the rest.
    """
    passes = [statistics.median(column) for column in zip(*(read.pass_s for read in reads), strict=True)]
    rest = statistics.median(made.first_s - read.seconds for made, read in free)
    return Costs(tuple(passes), tuple(size / bytes_s for size in reads[0].bytes), 0.0, 0.0, 0.0, rest)


def _free(sides: tuple[Side, Side], ask: Ask) -> tuple[Made, Read]:
    a, b = sides
    return b.answer(FREE, ask), a.read(FREE)[-1]


def _link(sides: tuple[Side, Side], warm: Sequence[tuple[Made, Read]], factor: float) -> Link:
    a, b = sides
    rate = sum(warm[0][1].bytes) / (factor * statistics.median(read.seconds for _, read in warm))
    names = f"serial {factor}", f"overlapped {factor}"
    for name in names:
        b.engine(name, a.serve(name, link_bytes_s=rate, serially=name == names[0]))
    return Link(factor, rate, *names)


def _tails(free: Sequence[tuple[Made, Read]]) -> list[float]:
    return [(made.first - read.passes[-1]) / read.seconds for made, read in free]


def _gain(link: Link, reckoned: Costs, shots: dict[str, list[Made]]) -> Gain:
    serial, overlapped = (
        Spread.of([made.first_s for made in shots[name]]) for name in (link.serial, link.overlapped)
    )
    return Gain(link.sending, link.bytes_s, serial, overlapped, reckoned.serial, reckoned.overlapped)
