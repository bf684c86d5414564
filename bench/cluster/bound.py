"""How fast the emulated machines can be at most: the linear program, and a check by trying all batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.cluster.cards import STAGES, Card, Work, prefill_s, rate, step_s
from bench.cluster.shares import shares
from bench.cluster.world import HandIn

TRIES, TURNS = 400, 50


def rates(cards: Mapping[str, Card], slots: int, works: Mapping[str, Work]) -> dict[str, dict[str, float]]:
    """machine -> stage -> jobs a second in its best batch of that stage, with the class's prefix kept."""
    return {
        m: {s: max(rate(card, w, n) for n in range(1, slots + 1)) for s, w in works.items()}
        for m, card in cards.items()
    }


def works_of(hand_ins: Sequence[HandIn], usual: Mapping[str, Work] = STAGES) -> dict[str, Work]:
    """The usual work of each stage with the mean output of these."""
    found = {}
    for stage, work in usual.items():
        outputs = [h.output[stage] for h in hand_ins if stage in h.output]
        if outputs:
            found[stage] = replace(work, output=round(sum(outputs) / len(outputs)))
    return found


def bound_s(
    cards: Mapping[str, Card],
    slots: int,
    hand_ins: Sequence[HandIn],
    changes: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    usual: Mapping[str, Work] = STAGES,
) -> float:
    """Seconds by the linear program for all these, had they all come at once, in the best batches.

    `changes` of speed, machine -> (time, speed)s, are known from the beginning. Batches of two models are
    left out: see `brute_s`.
    """
    works = works_of(hand_ins, usual)
    counts = {s: float(sum(s in h.output for h in hand_ins)) for s in works}
    speeds = rates(cards, slots, works)
    makespan = before = shares(speeds, counts).makespan_s
    for _ in range(TURNS if changes else 0):
        missing = {m: missing_s(of, makespan) for m, of in (changes or {}).items()}
        before, makespan = makespan, shares(speeds, counts, missing).makespan_s
        if abs(makespan - before) < 0.01:
            break
    return makespan


def missing_s(changes: Sequence[tuple[float, float]], until: float) -> float:
    """Seconds at usual speed that a machine lacks by then."""
    missing, since, speed = 0.0, 0.0, 1.0
    for at, after in [*changes, (until, 1.0)]:
        missing += max(0.0, min(at, until) - since) * (1 - speed)
        since, speed = max(since, min(at, until)), after
    return missing


def per_hour(cards: Mapping[str, Card], slots: int, usual: Mapping[str, Work] = STAGES) -> float:
    """Hand-ins of usual size an hour that no way of routing exceeds."""
    return 3600 * 1000 / shares(rates(cards, slots, usual), dict.fromkeys(usual, 1000.0)).makespan_s


def mixed_rates(card: Card, batch: Mapping[str, int], works: Mapping[str, Work]) -> dict[str, float]:
    """stage -> jobs a second with always this many of each stage in the batch.

    In a second each one that decodes gets 1/step tokens for the part of it that is not spent on prompts.
    """
    total = sum(batch.values())
    cache = {
        works[s].model: n * works[s].model.cache(works[s].prompt + works[s].output / 2)
        for s, n in batch.items()
    }
    step = step_s(card, {works[s].model: n for s, n in batch.items() if n}, cache)
    # jobs of a stage end at n / output a step; each brings a new prompt
    prompts = sum(
        n / work.output * prefill_s(card, work.model, work.prompt - work.shared, total, work.shared)
        for work, n in ((works[s], n) for s, n in batch.items())
    )
    return {s: n / works[s].output / (step + prompts) for s, n in batch.items()}


def brute_s(cards: Mapping[str, Card], slots: int, hand_ins: Sequence[HandIn]) -> float:
    """The same bound over all batches, mixed and small ones too, by scanning the price of a job.

    With a price for a job of each stage no machine earns more a second than with its best batch; the work is
    worth no less than all machines earn until the end. The best prices give the bound (duality).
    """
    works = works_of(hand_ins)
    first, second = works
    counts = {s: sum(s in h.output for h in hand_ins) for s in works}
    pairs = [(a, b) for a in range(slots + 1) for b in range(slots + 1 - a) if a + b]
    earns = {
        card: [mixed_rates(card, {first: a, second: b}, works) for a, b in pairs]
        for card in set(cards.values())
    }
    best = 0.0
    for i in range(TRIES + 1):
        # what all work of a stage is worth, so that both stages matter alike
        price = {first: i / TRIES / counts[first], second: (1 - i / TRIES) / counts[second]}
        most = {
            c: max(sum(price[s] * r for s, r in of.items()) for of in table) for c, table in earns.items()
        }
        best = max(best, 1.0 / sum(most[card] for card in cards.values()))
    return best
