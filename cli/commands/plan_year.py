"""`grader plan --year`: a term simulated, its waiting times, energy, and which machine to add next."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from cli.plan_inputs import (
    OUTPUT,
    PlanFile,
    advice,
    courses_of,
    from_config,
    in_words,
    machines_of,
    outputs_of,
    parse,
    read,
)
from cli.settings import Settings
from cli.tables import show, table
from grading.broker.dispatch import open_dispatch
from grading.domain.errors import ConfigError
from grading.domain.stages import grading_stages
from grading.scheduling.capacity_plan import Machine, NobodyDoes
from grading.scheduling.cost_model import Size
from grading.scheduling.flow import kinds_of
from grading.scheduling.term_plan import Addition, Assumed, Kind, TermPlan, Waits, plan_term

EXAMPLE = """\
weeks = 14
target_hours = 0.5
price_per_kwh = 0.30
retried = 0.02

[[courses]]
name = "programming"
count = 2
students = 240
deadlines = ["Fri 18:00"]

[[courses]]
name = "statistics"
count = 4
students = 120
deadlines = ["Fri 18:00", "Sun 23:59"]
every_weeks = 2

[[courses]]
name = "seminar"
count = 6
students = 30
deadlines = ["Wed 12:00", "Thu 12:00", "Sun 23:59"]
every_weeks = 3
regraded = 0.2

[[machines]]
name = "spark"
count = 2
card = "gb10"
mtbf_hours = 1000
mttr_hours = 8
watts_idle = 40
watts_busy = 240
[machines.stages]
analysis = { model = "qwen3-coder-30b" }
feedback = { model = "gemma-3-27b-bf16" }

[[machines]]
name = "ultra"
card = "m3-ultra"
mtbf_hours = 1000
mttr_hours = 8
watts_idle = 10
watts_busy = 295
[machines.stages]
feedback = { model = "gemma-3-27b-bf16" }
analysis = { model = "qwen3-coder-30b" }

[[machines]]
name = "max"
card = "m4-max"
mtbf_hours = 1000
mttr_hours = 8
watts_idle = 9
watts_busy = 145
[machines.stages]
feedback = { model = "gemma-3-27b-bf16" }
analysis = { model = "qwen3-coder-30b" }
"""
"""A department's term on four machines; docs/how-to/administrators/planning.md says where watts are from."""
MOST_COURSES = 12
"""Courses that a table shows: those that wait longest."""


@dataclass(frozen=True)
class Options:
    """What `grader plan` was given."""

    path: Path | None
    prompt: int
    shared: int
    outputs: tuple[str, ...]
    seed: int
    as_json: bool
    plot: Path | None


def plan_year(settings: Settings, options: Options) -> None:
    """Simulate the term of a file, or the example's."""
    plan_file = read(options.path) if options.path is not None else parse(EXAMPLE, "the example")
    courses = courses_of(plan_file) or courses_of(parse(EXAMPLE, "the example"))
    assumed_courses = not plan_file.courses or options.path is None
    machines, stages, unknown = _machines(settings, plan_file, options)
    assumed = Assumed(
        _kinds(plan_file, machines), stages, courses, plan_file.weeks, plan_file.target_hours,
        plan_file.retried, options.seed,
    )  # fmt: skip
    try:
        found = plan_term(assumed)
    except NobodyDoes as error:
        raise ConfigError(advice(str(error), unknown)) from None
    if options.plot is not None:
        _plot(found, options.plot)
    if options.as_json:
        click.echo(json.dumps(as_dict(found, plan_file), indent=2))
        return
    if assumed_courses:
        click.echo(
            "Courses of the example; describe your own in a file (docs/how-to/administrators/planning.md)."
        )
    _show(found, assumed, plan_file)
    for one in unknown:
        click.echo(f"Not counted, speed unknown: {one}")


def _machines(
    settings: Settings, plan_file: PlanFile, options: Options
) -> tuple[list[Machine], list[str], list[str]]:
    """Machines, stages, and whose speeds are not known: of the file, else of config.toml."""
    written = outputs_of(options.outputs)
    if plan_file.machines:
        tokens = {**OUTPUT, **written}
        machines = machines_of(
            plan_file, {s: Size(options.prompt, options.shared, n) for s, n in tokens.items()}
        )
        return machines, sorted({stage for one in machines for stage in one.peer.speed_profiles}), []
    config = settings.running
    machines, unknown = from_config(config, open_dispatch(config).machines(), written)
    return machines, list(grading_stages(config.stages)), unknown


def _kinds(plan_file: PlanFile, machines: Sequence[Machine]) -> list[Kind]:
    kinds, counts = kinds_of(machines)
    written = {one.name: one for one in plan_file.machines}
    found = []
    for machine, count in zip(kinds, counts, strict=True):
        one = written.get(machine.kind)
        if one is None:
            found.append(Kind(machine, count))
            continue
        mtbf_h = one.mtbf_hours or math.inf
        found.append(Kind(machine, count, mtbf_h, one.mttr_hours, one.watts_idle, one.watts_busy, one.price))
    return found


def as_dict(found: TermPlan, plan_file: PlanFile) -> dict[str, object]:
    """For programs: hours; null where a submission is never graded."""
    energy = _energy(found)
    price = plan_file.price_per_kwh
    return {
        **_finite(asdict(found)),
        "target_hours": plan_file.target_hours,
        "kwh": energy,
        "energy_cost": energy * price if energy is not None and price is not None else None,
        "currency": plan_file.currency,
    }


def _finite(value: object) -> dict[str, object]:
    def of(one: object) -> object:
        if isinstance(one, Mapping):
            return {str(key): of(part) for key, part in one.items()}
        if isinstance(one, list | tuple):
            return [of(part) for part in one]
        return None if isinstance(one, float) and not math.isfinite(one) else one

    made = of(value)
    assert isinstance(made, dict)
    return made


def _energy(found: TermPlan) -> float | None:
    """Of all machines; nothing where one kind's watts are not known."""
    known = [one.kwh for one in found.used if one.kwh is not None]
    return sum(known) if len(known) == len(found.used) else None


def _wait(value: float) -> str:
    return "never" if math.isinf(value) else in_words(value)


def _show(found: TermPlan, assumed: Assumed, plan_file: PlanFile) -> None:
    click.echo(
        f"{found.submissions:,} submissions of {len(assumed.courses)} courses in {assumed.weeks} weeks: "
        f"median {_wait(found.total.median_h)}, 95 % within {_wait(found.total.p95_h)}, "
        f"longest {_wait(found.total.worst_h)}. "
        f"Machines have work in {found.busy_h:,.0f} of {found.hours:,.0f} h."
    )
    _show_waits("week", {str(week): one for week, one in found.weeks.items()})
    worst = sorted(found.courses.items(), key=lambda item: -item[1].p95_h)[:MOST_COURSES]
    _show_waits("course", dict(worst))
    if len(found.courses) > MOST_COURSES:
        click.echo(f"These {MOST_COURSES} of {len(found.courses)} courses wait longest; --json has all.\n")
    _show_used(found, plan_file)
    _show_additions(found, assumed)


def _show_waits(heading: str, rows: Mapping[str, Waits]) -> None:
    shown = table(heading, "submissions", "median", "95 %", "longest")
    for name, one in rows.items():
        shown.add_row(name, f"{one.submissions:,}", *map(_wait, (one.median_h, one.p95_h, one.worst_h)))
    show(shown)
    click.echo()


def _show_used(found: TermPlan, plan_file: PlanFile) -> None:
    shown = table("machines", "count", "busy h each", "failures", "kWh", "idle kWh")
    for one in found.used:
        kwh = ["unknown"] * 2 if one.kwh is None else [f"{one.kwh:,.0f}", f"{one.kwh_idle:,.0f}"]
        busy = one.busy_h / one.count if one.count else 0.0
        shown.add_row(one.kind, str(one.count), f"{busy:,.0f}", str(one.failures), *kwh)
    show(shown)
    energy, price = _energy(found), plan_file.price_per_kwh
    if energy is None:
        click.echo("Energy: unknown, as watts_idle and watts_busy of some machines are not in the file.")
    elif price is None:
        click.echo(f"Energy: {energy:,.0f} kWh; its cost is unknown, as price_per_kwh is not in the file.")
    else:
        each = 1000 * energy / max(1, found.submissions)
        click.echo(
            f"Energy: {energy:,.0f} kWh, {energy * price:,.0f} {plan_file.currency}; "
            f"{each:,.0f} Wh for each submission."
        )
    click.echo()


def _show_additions(found: TermPlan, assumed: Assumed) -> None:
    target = in_words(assumed.target_h)
    missed = [week for week, one in found.weeks.items() if one.p95_h > assumed.target_h]
    if missed:
        click.echo(
            f"The target, 95 % within {target}, is missed in {len(missed)} of {len(found.weeks)} weeks: "
            f"buy before week {missed[0]}."
        )
    else:
        click.echo(f"The target, 95 % within {target}, is held in every week.")
    shown = table("worst week, 95 % within", "difference", "change")
    shown.add_row(_wait(found.p95_h), "", "as it is")
    for one in found.additions:
        shown.add_row(_wait(one.p95_h), _difference(one.p95_h, found.p95_h), f"one more {_bought(one)}")
    for factor, p95_h in found.growth.items():
        shown.add_row(_wait(p95_h), _difference(p95_h, found.p95_h), f"{factor:g} times the students")
    show(shown)
    if found.steps:
        bought = ", then ".join(f"{_bought(one)} ({_wait(one.p95_h)})" for one in found.steps)
        held = found.steps[-1].p95_h <= assumed.target_h
        click.echo(f"Buy one {bought}." + ("" if held else f" That does not hold {target} yet."))


def _bought(one: Addition) -> str:
    return one.kind if one.price is None else f"{one.kind} for {one.price:,.0f}"


def _difference(value: float, before: float) -> str:
    known = math.isfinite(value) and math.isfinite(before) and before > 0
    return f"{value / before - 1:+.0%}" if known else ""


def _plot(found: TermPlan, path: Path) -> None:
    """Bars by week, as SVG."""
    import pygal  # of the extra `web`

    chart = pygal.Bar(
        js=(), width=900, height=420, title="Hours until graded, by week", x_title="week",
        pretty_print=True, no_prefix=True, disable_xml_declaration=True,
    )  # fmt: skip
    chart.x_labels = [str(week) for week in found.weeks]
    for name, values in (
        ("median", [one.median_h for one in found.weeks.values()]),
        ("95 %", [one.p95_h for one in found.weeks.values()]),
        ("longest", [one.worst_h for one in found.weeks.values()]),
    ):
        chart.add(name, [round(value, 3) if math.isfinite(value) else None for value in values])
    path.write_text(chart.render(is_unicode=True), encoding="utf-8")
