"""Tokens a second by how many requests run at once, beside `mlx_lm.server`; and what a schema costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.engines_models import Ask, Sizes, job
from bench.engines_parts import Here, Spread, ratios
from bench.engines_sides import OUT_OF_TIME, Run, Side, at_once, ours, server
from workers.machine.stages import known_stages

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
    server: Spread
    """`mlx_lm.server`, asked for whole answers."""
    openai: Spread
    """The same server through the `openai` engine."""
    to_one: Spread
    """`mlx` beside itself with one request at a time."""
    to_server: Spread
    to_openai: Spread
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


def rates(here: Here, sizes: Sizes, counts: Sequence[int]) -> list[Rate]:
    """All sides in turn, each with prompts that it has not seen; empty without time for it."""
    here.say("tokens a second, beside mlx_lm.server")
    cells: dict[tuple[str, int], _Cell] = {}
    try:
        with (
            ours(here.model, here.clock.left, slots=max(counts)) as mlx,
            server(here.model, here.clock.left) as (openai, bare),
        ):
            for side in (mlx, openai, bare):
                for count in counts:
                    at_once(side, here.prompts.asks("warm", f"{side.name} {count}", count, Sizes(40, 20, 8)))
            for turn in here.clock.turns(here.turns):
                made = _turn(here, sizes, counts, (mlx, openai, bare), turn)
                for key, runs in made.items():
                    cells.setdefault(key, _Cell.empty()).add(runs)
                said = ", ".join(
                    f"{name} {run.rate:.0f}" for name, run in made["cached", max(counts)].items()
                )
                here.say(f"  turn {turn + 1}: tokens a second, {max(counts)} at once, prefix cached: {said}")
    except OUT_OF_TIME:
        here.say("  no time for more")
    return [_rate(cells, *key) for key in cells]


def _turn(
    here: Here, sizes: Sizes, counts: Sequence[int], sides: tuple[Side, ...], turn: int
) -> dict[tuple[str, int], dict[str, Run]]:
    made = {}
    order = sides[turn % len(sides) :] + sides[: turn % len(sides)]
    for count in counts:
        for kind in KINDS:
            runs = {side.name: _plain(here, side, sizes, count, kind, turn) for side in order}
            runs["bound"], runs["free"] = _pair(here, sides[0], sizes, count, kind, turn)
            made[kind, count] = runs
    return made


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
        server=Spread.of(made["server"]),
        openai=Spread.of(made["openai"]),
        to_one=ratios(made["mlx"], one.rates["mlx"]),
        to_server=ratios(made["mlx"], made["server"]),
        to_openai=ratios(made["mlx"], made["openai"]),
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
    here.say("what a schema costs")
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
        here.say("  no time for more")
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
