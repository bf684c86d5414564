"""Measurements of engines: the same tokens, shared prefixes, tokens per second, and the cost of a schema."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.engines.systems import (
    FAILURES,
    OUT_OF_TIME,
    Answer,
    ByEngine,
    OutOfTime,
    Run,
    Side,
    at_once,
    ours,
    server,
    why,
)
from bench.engines.workload import Ask, Prompts, Sizes, job
from workers.machine.stages import known_stages

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
class Failure:
    """A side that failed in a part; what was measured before it, and of the others, stays."""

    part: str
    side: str
    why: str


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
    failures: list[Failure] = field(default_factory=list)

    def failed(self, part: str, side: str, error: Exception) -> None:
        """Note a failure as a row of its own."""
        self.failures.append(Failure(part, side, why(error)))
        self.say(f"  {side} failed: {why(error)}")


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
    found, narrowest = Comparison([]), float("inf")
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
        except FAILURES as error:
            here.failed("same tokens", "mlx", error)
            if not found.ways:
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
        here.say("  stopped: out of time")
    except FAILURES as error:
        here.failed("shared prefix", "mlx", error)
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
    """The ratio of each turn that both had; one that failed had fewer."""
    return Spread.of([a / b for a, b in zip(above, below, strict=False)])


KINDS = ("cold", "cached")
LEAST = 60
"""A schema made for so few tokens is as short as they get: the models here need one for each character."""
ROOM = 1000
"""More tokens than an answer takes; near its limit it would be brought to an end, which costs extra."""


@dataclass(frozen=True)
class Rate:
    """Tokens a second of so many requests at once, all together, from the first's start to the last's end.

    Prefix "cold": nobody has sent it before. "cached": a request with it ended just before.
    """

    prefix: str
    at_once: int
    mlx: Spread
    server: Spread | None
    """`mlx_lm.server`, asked for whole answers; None where it failed."""
    openai: Spread | None
    """The same server through the `openai` engine."""
    to_one: Spread
    """`mlx` beside itself with one request at a time."""
    to_server: Spread | None
    to_openai: Spread | None
    bound: Spread
    """`mlx` with a schema; answers are a little longer."""
    bound_cost: Spread
    """Its time beside that of as many tokens without one."""
    cached: Mapping[str, float]
    """Share of the prompts' tokens that came from a prefix cache."""


@dataclass
class _Cell:
    """What was measured of one number of requests with one kind of prefix, a value a turn."""

    seconds: dict[str, list[float]]
    rates: dict[str, list[float]]
    cached: dict[str, float]

    @classmethod
    def empty(cls) -> _Cell:
        return cls(defaultdict(list), defaultdict(list), {})

    def add(self, runs: Mapping[str, Run]) -> None:
        for name, run in runs.items():
            self.seconds[name].append(run.seconds)
            self.rates[name].append(run.rate)
            prompts = sum(answer.prompt for answer in run.answers)
            self.cached[name] = round(sum(answer.cached for answer in run.answers) / prompts, 3)


RATES = "tokens per second"


def rates(here: Here, sizes: Sizes, counts: Sequence[int]) -> list[Rate]:
    """All sides in turn, each with prompts that it has not seen; empty without time for it.

    A side that fails is left out from then on.
    """
    here.say("tokens per second, beside mlx_lm.server")
    cells: dict[tuple[str, int], _Cell] = defaultdict(_Cell.empty)
    try:
        with ExitStack() as stack:
            mlx = stack.enter_context(ours(here.model, here.clock.left, slots=max(counts)))
            sides = _Sides(here, {side.name: side for side in (mlx, *_servers(here, stack))})
            for side in sides.left():
                for count in counts:
                    warm = here.prompts.asks("warm", f"{side.name} {count}", count, Sizes(40, 20, 8))
                    sides.run(side, partial(at_once, side, warm))
            for turn in here.clock.turns(here.turns):
                _turn(here, sizes, counts, sides, turn, cells)
    except OUT_OF_TIME:
        here.say("  stopped: out of time")
    except FAILURES as error:
        here.failed(RATES, "mlx", error)
    return [_rate(cells, *key) for key in list(cells)]


def _servers(here: Here, stack: ExitStack) -> Sequence[Side]:
    """The server through both clients; none where it does not start."""
    try:
        return stack.enter_context(server(here.model, here.clock.left))
    except OUT_OF_TIME:
        raise
    except FAILURES as error:
        here.failed(RATES, "server", error)
        return ()


@dataclass(frozen=True)
class _Sides:
    """Those that have not failed yet."""

    here: Here
    known: dict[str, Side]

    def left(self, turn: int = 0) -> list[Side]:
        """Each turn begins with another one."""
        sides = list(self.known.values())
        begin = turn % len(sides)
        return sides[begin:] + sides[:begin]

    def run(self, side: Side, measure: Callable[[], Run]) -> Run | None:
        """What a side did; nothing from when it failed on. A failure of `mlx` is raised."""
        if side.name not in self.known:
            return None
        try:
            return measure()
        except OUT_OF_TIME:
            raise
        except FAILURES as error:
            if side.name == "mlx":
                raise
            self.here.failed(RATES, side.name, error)
            del self.known[side.name]
            return None


def _turn(
    here: Here,
    sizes: Sizes,
    counts: Sequence[int],
    sides: _Sides,
    turn: int,
    cells: dict[tuple[str, int], _Cell],
) -> None:
    mlx = sides.known["mlx"]
    for count in counts:
        for kind in KINDS:
            runs = {
                side.name: sides.run(side, partial(_plain, here, side, sizes, count, kind, turn))
                for side in sides.left(turn)
            }
            runs["bound"], runs["free"] = _pair(here, mlx, sizes, count, kind, turn)
            cells[kind, count].add({name: run for name, run in runs.items() if run is not None})
    said = ", ".join(f"{name} {run.rate:.0f}" for name, run in runs.items() if run is not None)
    here.say(f"  turn {turn + 1}: tokens per second, {max(counts)} at once, prefix cached: {said}")


def _plain(here: Here, side: Side, sizes: Sizes, count: int, kind: str, turn: int) -> Run:
    # prompts name their side: the server would find those of the other client in its cache
    return at_once(side, _asks(here, side, sizes, count, kind, f"{side.name} {turn}"))


def _asks(here: Here, side: Side, sizes: Sizes, count: int, kind: str, name: str) -> list[Ask]:
    """Requests that nobody has sent; for a cached prefix, the side has just answered another with it."""
    shared = "class" if kind == "cached" else f"{name} {count}"
    if kind == "cached":
        at_once(side, here.prompts.asks(shared, f"before {name} {count}", 1, replace(sizes, output=1)))
    return here.prompts.asks(shared, f"{kind} {name} {count}", count, sizes)


def _pair(here: Here, side: Side, sizes: Sizes, count: int, kind: str, turn: int) -> tuple[Run, Run]:
    """With a schema, and then as many tokens of each answer without."""
    schema = _text_of(sizes.output)
    asks = _asks(here, side, replace(sizes, output=sizes.output + ROOM), count, kind, f"bound {turn}")
    bound = at_once(side, [replace(ask, schema=schema) for ask in asks])
    free = _asks(here, side, sizes, count, kind, f"free {turn}")
    return bound, at_once(side, _as_long(free, bound))


def _as_long(asks: Sequence[Ask], run: Run) -> list[Ask]:
    return [replace(ask, most=answer.steps) for ask, answer in zip(asks, run.answers, strict=True)]


def _text_of(length: int) -> dict[str, Any]:
    text = {"type": "string", "minLength": length, "maxLength": length}
    return {
        "type": "object",
        "properties": {"answer": text},
        "required": ["answer"],
        "additionalProperties": False,
    }


def _rate(cells: Mapping[tuple[str, int], _Cell], prefix: str, count: int) -> Rate:
    cell, one = cells[prefix, count], cells[prefix, min(count for _, count in cells)]
    made = cell.rates
    return Rate(
        prefix=prefix,
        at_once=count,
        mlx=Spread.of(made["mlx"]),
        server=Spread.of(made["server"]) if made["server"] else None,
        openai=Spread.of(made["openai"]) if made["openai"] else None,
        to_one=ratios(made["mlx"], one.rates["mlx"]),
        to_server=ratios(made["mlx"], made["server"]) if made["server"] else None,
        to_openai=ratios(made["mlx"], made["openai"]) if made["openai"] else None,
        bound=Spread.of(made["bound"]),
        bound_cost=ratios(cell.seconds["bound"], cell.seconds["free"]),
        cached=cell.cached,
    )


@dataclass(frozen=True)
class Bound:
    """What the analysis' own schema costs: time a token bound to it, beside as many tokens free."""

    at_once: int
    tokens: int
    """Of all answers of a turn."""
    bound_ms: Spread
    """Milliseconds a token, all together."""
    free_ms: Spread
    cost: Spread
    """1.05 is 5 % more."""


def schema_cost(here: Here, sizes: Sizes, counts: Sequence[int]) -> list[Bound]:
    """Bound and free in turn, with the prefix cached; empty without time for it."""
    here.say("cost of schemas")
    schema = known_stages()["analysis"].schema(job(LEAST))
    taken: dict[int, dict[str, list[Run]]] = {count: {"bound": [], "free": []} for count in counts}
    asks = {count: here.prompts.asks("class", f"bound {count}", count, sizes) for count in counts}
    ways: dict[int, dict[str, list[Ask]]] = {}
    try:
        with ours(here.model, here.clock.left, slots=max(counts)) as side:
            for count in counts:  # says how long the answers are, which must be the same without the schema
                bound = [replace(ask, schema=schema) for ask in asks[count]]
                ways[count] = {"bound": bound, "free": _as_long(asks[count], at_once(side, bound))}
            for turn in here.clock.turns(here.turns):
                for count in counts:
                    for way in ("bound", "free") if turn % 2 else ("free", "bound"):
                        taken[count][way].append(at_once(side, ways[count][way]))
                said = [f"{n} at once {_cost(made)[-1] - 1:+.1%}" for n, made in taken.items()]
                here.say(f"  turn {turn + 1}: {', '.join(said)}")
    except OUT_OF_TIME:
        here.say("  stopped: out of time")
    except FAILURES as error:
        here.failed("schemas", "mlx", error)
    return [_bound(count, made) for count, made in taken.items() if made["bound"] and made["free"]]


def _each(runs: Sequence[Run]) -> list[float]:
    """Milliseconds a token, all together."""
    return [1000 * run.seconds / sum(answer.steps for answer in run.answers) for run in runs]


def _cost(made: Mapping[str, Sequence[Run]]) -> list[float]:
    pairs = zip(_each(made["bound"]), _each(made["free"]), strict=False)
    return [bound / free for bound, free in pairs]


def _bound(count: int, made: Mapping[str, Sequence[Run]]) -> Bound:
    return Bound(
        at_once=count,
        tokens=sum(answer.steps for answer in made["bound"][-1].answers),
        bound_ms=Spread.of(_each(made["bound"])),
        free_ms=Spread.of(_each(made["free"])),
        cost=Spread.of(_cost(made)),
    )
