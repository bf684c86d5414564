"""`grader bench term`: `grader plan --year` beside emulated machines and the product, same arrivals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import click

from bench.router.policies import ProductPolicy
from bench.router.scenarios import Scenario, named
from bench.router.simulation import Arrival
from bench.router.virtual_time import play, quantile, warm
from cli.tables import show, table
from grading.scheduling import cost_model
from grading.scheduling.capacity_plan import Machine
from grading.scheduling.cluster_view import Peer, SpeedProfile
from grading.scheduling.cost_model import Size
from grading.scheduling.flow import Cluster
from grading.scheduling.term import Work
from grading.scheduling.term_simulation import Change, Term

MODELS = {"analysis": "qwen3-coder-30b", "feedback": "gemma-3-27b-bf16"}
CARDS = {"GB10": "gb10", "M3 Ultra": "m3-ultra", "M4 Max": "m4-max"}
"""Of the emulator -> of `grading.scheduling.cost_model`."""
SCENARIOS = ("backlog400", "poisson50", "poisson80", "spike", "lost")
OF_PRODUCT = ("backlog400", "spike")
"""What is played with the product, too: both in ten times less time take about ten minutes."""
SLOTS, LEARNED = 16, 60


@dataclass(frozen=True)
class Times:
    """Of one way; seconds."""

    makespan: float
    p50: float
    p95: float


@dataclass(frozen=True)
class Compared:
    """One scenario on paper, in virtual time, and perhaps with the product."""

    scenario: str
    paper: Times
    emulated: Times
    product: Times | None = None


def on_paper(scenario: Scenario) -> Times:
    """The simulation of a term with a scenario's arrivals and machines."""
    setting = scenario.setting
    works = setting.works
    names = list(dict.fromkeys(card.name for card in setting.cards.values()))
    kinds = [_kind(CARDS[name], setting.slots, {s: w.output for s, w in works.items()}) for name in names]
    counts = tuple(sum(card.name == name for card in setting.cards.values()) for name in names)
    work = [_work(scenario, one) for one in sorted(scenario.arrivals, key=lambda one: one.at)]
    played = Term(work, Cluster(kinds, list(works)), counts, _changes(scenario, names)).play()
    waited = [at - one.at_s for at, one in zip(played.graded_s, work, strict=True)]
    return _times(max(played.graded_s, default=0.0), waited)


def _work(scenario: Scenario, one: Arrival) -> Work:
    works = scenario.setting.works
    sizes = tuple(one.output[stage] / works[stage].output for stage in works)
    return Work(one.at, 0, 0, batch=one.priority == "batch", sizes=sizes)


def _times(makespan: float, waited: Sequence[float]) -> Times:
    return Times(makespan, quantile(waited, 0.5), quantile(waited, 0.95))


def _kind(card: str, slots: int, outputs: dict[str, int]) -> Machine:
    """A machine as a file of `grader plan` describes it."""
    profiles = {}
    for stage, output in outputs.items():
        model, size = cost_model.MODELS[MODELS[stage]], Size(5000, 4000, output)
        alone_s, full_s = (n / cost_model.rate(cost_model.CARDS[card], model, size, n) for n in (1, slots))
        profiles[stage] = SpeedProfile(alone_s, full_s, slots, tokens=output)
    return Machine(Peer(card, slots, tuple(outputs), speed_profiles=profiles), kind=card)


def _changes(scenario: Scenario, names: Sequence[str]) -> list[Change]:
    """Losses and returns; a machine that is only slower is none."""
    cards = scenario.setting.cards
    return sorted(
        (at, names.index(cards[machine].name), 1 if speed else -1)
        for machine, changes in scenario.setting.changes.items()
        for at, speed in changes
    )


def in_virtual_time(scenario: Scenario) -> Times:
    """The product's rule on emulated machines that learned their speeds before."""
    outcome = play(scenario, ProductPolicy(oracle=False, said=warm(scenario)))
    return Times(outcome.makespan_s, outcome.p50_s, outcome.p95_s)


def with_product(scenario: Scenario, compress: float) -> Times:
    """All processes of the product before emulated servers, in compressed time."""
    from bench.router.results import OURS, Plan
    from bench.router.trial import run_product

    outcome = run_product(Plan(scenario, compress, at_once=64, learn=LEARNED), _say, OURS)
    return Times(outcome.makespan, outcome.took(0.5), outcome.took(0.95))


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.command("term")
@click.option("--scenario", "scenarios", multiple=True, help="Scenario of bench router; repeatable.")
@click.option(
    "--product",
    is_flag=True,
    help="Also with the product, in compressed time; by default of two scenarios, in about ten minutes.",
)
@click.option("--compress", default=10.0, show_default=True, help="Emulated seconds per second.")
@click.option("--seed", default=1, show_default=True, help="Seed of the submissions.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(scenarios: tuple[str, ...], product: bool, compress: float, seed: int, as_json: bool) -> None:
    """Compare the simulation of a term with emulated machines."""
    found = []
    for name in scenarios or (OF_PRODUCT if product else SCENARIOS):
        _say(name)
        scenario = named(name, SLOTS, seed)
        run = with_product(scenario, compress) if product else None
        found.append(Compared(scenario.name, on_paper(scenario), in_virtual_time(scenario), run))
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
    else:
        _show(found)


def _show(found: Sequence[Compared]) -> None:
    rows = table("scenario", "way", "makespan s", "p50 s", "p95 s", "paper / this")
    for one in found:
        for way, times in (("paper", one.paper), ("virtual time", one.emulated), ("product", one.product)):
            if times is not None:
                seconds = [f"{value:,.0f}" for value in asdict(times).values()]
                ratios = [
                    f"{paper / value:.2f}" if value else ""
                    for paper, value in zip(asdict(one.paper).values(), asdict(times).values(), strict=True)
                ]
                rows.add_row(one.scenario, way, *seconds, "" if way == "paper" else " ".join(ratios))
    show(rows)
