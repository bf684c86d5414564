"""Parts of the benchmark of engines: the same tokens, and the shared prefix; and what all parts share."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.engines_models import Ask, Prompts, Sizes
from bench.engines_sides import OUT_OF_TIME, Answer, ByEngine, OutOfTime, Run, at_once, ours

SHORT_STEP = 128
"""Tokens between two decoding steps where tokens are compared, so that prompts are read in several chunks."""


@dataclass
class Clock:
    """Shares out the time of a run. `weights` are those of the parts to come, in their order."""

    limit_s: float
    weights: list[float]
    _began: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds of the whole run that are left, never quite none."""
        return max(0.1, self.limit_s - self.elapsed)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def turns(self, most: int) -> Iterator[int]:
        """Numbers of turns of the next part: at least one, and none that begins after the part's share."""
        share = self.weights[0] / sum(self.weights)
        del self.weights[0]
        until = time.monotonic() + (self.limit_s - self.elapsed) * share
        for number in range(most):
            if number and time.monotonic() >= until:
                return
            yield number


@dataclass(frozen=True)
class Spread:
    """A figure of several turns."""

    median: float
    least: float
    most: float
    turns: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        low, high = min(values), max(values)
        return cls(round(statistics.median(values), 3), round(low, 3), round(high, 3), len(values))


@dataclass(frozen=True)
class Here:
    """One model that is measured."""

    name: str
    model: Path
    prompts: Prompts
    clock: Clock
    many: int
    """Requests at once, where only one number of them is measured."""
    turns: int
    """At most so many turns a part."""
    say: Callable[[str], None]
    """Tells people what is being done."""


@dataclass(frozen=True)
class Same:
    """How many answers have exactly the tokens of mlx-lm's own `stream_generate` for one prompt alone.

    `narrowest` is the least distance in the reference between the likeliest and the second likeliest token,
    as log-probabilities: below about 1e-5 rounding decides.
    """

    same: int
    all: int
    ways: Mapping[str, str]
    narrowest: float
    first_difference: str = ""


@dataclass
class Comparison:
    """Answers beside the reference, as they come."""

    expected: Sequence[str]
    same: int = 0
    all: int = 0
    ways: dict[str, str] = field(default_factory=dict)
    first_difference: str = ""

    def compare(self, way: str, answers: Sequence[Answer]) -> None:
        """Take the answers to all prompts, given in one way."""
        equal = [answer.text == text for answer, text in zip(answers, self.expected, strict=True)]
        self.ways[way] = f"{sum(equal)} of {len(equal)}"
        self.same += sum(equal)
        self.all += len(equal)
        if not all(equal) and not self.first_difference:
            number = equal.index(False)
            pairs = zip(self.expected[number], answers[number].text, strict=False)
            place = next((n for n, (a, b) in enumerate(pairs) if a != b), "its end")
            self.first_difference = f"{way}: answer {number}, token {place}"


def same_tokens(here: Here, sizes: Sizes) -> Same | None:
    """At temperature 0, alone and in a batch, without and with the prefix cache; None without time for it."""
    here.say("the same tokens as mlx-lm alone")
    for _ in here.clock.turns(1):
        asks = here.prompts.asks("same", "same", here.many, sizes)
        # they end one after the other, so that the batch changes
        asks = [replace(ask, most=ask.most - number) for number, ask in enumerate(asks)]
        try:
            expected, narrowest = _alone(here, asks)
            found = Comparison(expected)
            with ours(here.model, here.clock.left, slots=here.many, caches=False, step=SHORT_STEP) as side:
                found.compare("alone", [at_once(side, [ask]).answers[0] for ask in asks])
                found.compare("batch", at_once(side, asks).answers)
            with ours(here.model, here.clock.left, slots=here.many, step=SHORT_STEP) as side:
                found.compare("batch, prefix being made", at_once(side, asks).answers)
                found.compare("batch, prefix cached", at_once(side, asks).answers)
                found.compare("alone, prefix cached", [at_once(side, [ask]).answers[0] for ask in asks])
        except OUT_OF_TIME:
            return None
    return Same(found.same, found.all, found.ways, narrowest, found.first_difference)


def _alone(here: Here, asks: Sequence[Ask]) -> tuple[list[str], float]:
    """Texts by mlx-lm's `stream_generate`, one after the other, and the narrowest choice it made."""
    import mlx.core as mx
    from mlx_lm import load, stream_generate

    model, tokenizer = load(str(here.model))
    characters = {token: character for character, token in tokenizer.get_vocab().items()}
    texts: list[str] = []
    narrowest = float("inf")
    for ask in asks:
        if here.clock.left() <= 1:
            raise OutOfTime
        ids = tokenizer.apply_chat_template(ask.chat, add_generation_prompt=True)
        written = []
        for step in stream_generate(model, tokenizer, ids, max_tokens=ask.most):
            written.append(characters[step.token])
            second, first = mx.sort(step.logprobs)[-2:]
            narrowest = min(narrowest, _number(first - second))
        texts.append("".join(written))
    return texts, narrowest


def _number(value: Any) -> float:
    return float(value.item())


@dataclass(frozen=True)
class Prefix:
    """Seconds of submissions at once that share a prefix, beside those without the cache."""

    submissions: int
    sizes: Sizes
    without_s: Spread
    first_s: Spread
    """Nobody has sent this prefix before: making it counts."""
    again_s: Spread
    """The prefix is in the cache."""
    first_faster: Spread
    again_faster: Spread
    cached: float
    """Share of the prompt's tokens that came from the cache in the last."""


def shared_prefix(here: Here, sizes: Sizes) -> Prefix | None:
    """Submissions with a long shared prefix and short answers; None without time for it."""
    here.say(f"a shared prefix of {sizes.shared} tokens")
    runs: list[dict[str, Run]] = []
    try:
        with (
            ours(here.model, here.clock.left, slots=here.many, caches=False) as without,
            ours(here.model, here.clock.left, slots=here.many) as caching,
        ):
            for side in (without, caching):
                at_once(side, here.prompts.asks("warm", "warm", here.many, Sizes(40, 20, 8)))
            for turn in here.clock.turns(here.turns):
                ways = [("first", caching), ("again", caching)]
                ways.insert(2 * (turn % 2), ("without", without))
                runs.append({way: _shared(here, side, sizes, way, turn) for way, side in ways})
                said = ", ".join(f"{way} {run.seconds:.2f} s" for way, run in runs[-1].items())
                here.say(f"  turn {turn + 1}: {said}")
    except OUT_OF_TIME:
        here.say("  no time for more")
    return _prefix(here, sizes, runs) if runs else None


def _shared(here: Here, side: ByEngine, sizes: Sizes, way: str, turn: int) -> Run:
    return at_once(side, here.prompts.asks(f"prefix {turn}", f"{way} {turn}", here.many, sizes))


def _prefix(here: Here, sizes: Sizes, runs: Sequence[Mapping[str, Run]]) -> Prefix:
    without, first, again = ([run[way].seconds for run in runs] for way in ("without", "first", "again"))
    answers = runs[-1]["again"].answers
    return Prefix(
        submissions=here.many,
        sizes=sizes,
        without_s=Spread.of(without),
        first_s=Spread.of(first),
        again_s=Spread.of(again),
        first_faster=ratios(without, first),
        again_faster=ratios(without, again),
        cached=round(sum(a.cached for a in answers) / sum(a.prompt for a in answers), 3),
    )


def ratios(above: Sequence[float], below: Sequence[float]) -> Spread:
    """The ratio of each turn."""
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])
