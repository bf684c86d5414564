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
            "Courses of the example; describe your own in a file (docs/how-to/administrators/planning.md).\n"
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
    """A time in words; of few minutes with a digit more, so that differences are seen."""
    if math.isinf(value):
        return "never"
    return f"{60 * value:.1f} min" if 1 / 60 <= value < 1 / 6 else in_words(value)


def _show(found: TermPlan, assumed: Assumed, plan_file: PlanFile) -> None:
    click.echo("Assumed; change it in the file:")
    for line in _assumptions(assumed):
        click.echo(f"- {line}")
    click.echo(
        f"\n{found.submissions:,} submissions are graded in {assumed.weeks} weeks. From submission to grade: "
        f"half within {_wait(found.total.median_h)}, 95 % within {_wait(found.total.p95_h)}, "
        f"the longest {_wait(found.total.worst_h)}.\n"
        f"There is work in {found.busy_h:,.0f} of {found.hours:,.0f} hours; "
        f"{found.retries:,} runs are repeated.\n"
    )
    _show_waits("week of the\ndeadline", {str(week): one for week, one in found.weeks.items()})
    worst = sorted(found.courses.items(), key=lambda item: -item[1].p95_h)[:MOST_COURSES]
    _show_waits("course", dict(worst))
    if len(found.courses) > MOST_COURSES:
        click.echo(f"These {MOST_COURSES} of {len(found.courses)} courses wait longest; --json has all.\n")
    _show_used(found, plan_file)
    _show_additions(found, assumed, plan_file.currency)


def _assumptions(assumed: Assumed) -> list[str]:
    """What the answer depends on, a sentence each."""
    courses = assumed.courses
    take_part = _range([one.taking_part for one in courses])
    times = _figures([one.submissions for one in courses])
    found = [
        f"Courses: {len(courses)}, with {sum(one.students for one in courses):,} students; {take_part} of "
        f"them take part in a deadline, and submit {times} times on average.",
        f"{_range([one.rush.share(1.0) for one in courses])} of the submissions come in the last hour before "
        "their deadline.",
        f"A submission has a run of each stage: {', '.join(assumed.stages)}.",
        f"{_range([assumed.retried])} of the runs are repeated, as their result is not valid.",
    ]
    if any(one.regraded for one in courses):
        regraded = _range([one.regraded for one in courses])
        found.append(
            f"{regraded} of the submissions are regraded three days after their deadline, when nobody waits."
        )
    fail = [
        f"{_name(kind)} every {kind.mtbf_h:,.0f} h for {kind.mttr_h:g} h"
        for kind in assumed.kinds
        if math.isfinite(kind.mtbf_h)
    ]
    found.append(
        f"Each machine fails on average: {', '.join(fail)}."
        if fail
        else "No machine fails, as mtbf_hours is not in the file."
    )
    found.append("Machines are on day and night; the server, the network and the sandbox never limit.")
    return found


def _name(kind: Kind) -> str:
    return kind.machine.kind or kind.machine.name


def _range(shares: Sequence[float]) -> str:
    return f"{_figures([round(100 * one, 0 if one >= 0.1 else 1) for one in shares])} %"


def _figures(values: Sequence[float]) -> str:
    low, high = f"{min(values):g}", f"{max(values):g}"
    return low if low == high else f"{low} to {high}"


def _show_waits(heading: str, rows: Mapping[str, Waits]) -> None:
    shown = table(heading, "submissions", "half\nwithin", "95 %\nwithin", "longest")
    for name, one in rows.items():
        shown.add_row(name, f"{one.submissions:,}", *map(_wait, (one.median_h, one.p95_h, one.worst_h)))
    show(shown)
    click.echo()


def _show_used(found: TermPlan, plan_file: PlanFile) -> None:
    shown = table(
        "machines",
        "count",
        "hours with\nwork, each",
        "failures,\ntogether",
        "energy\nkWh",
        "of it without\nwork, kWh",
    )
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
            f"Energy of the term: {energy:,.0f} kWh, at {price:g} {plan_file.currency} a kWh "
            f"{energy * price:,.0f} {plan_file.currency}; {each:,.0f} Wh for each submission."
        )
    click.echo()


def _show_additions(found: TermPlan, assumed: Assumed, currency: str) -> None:
    target = in_words(assumed.target_h)
    missed = [week for week, one in found.weeks.items() if one.p95_h > assumed.target_h]
    if missed:
        click.echo(
            f"The target, 95 % within {target}, is missed in {len(missed)} of {len(found.weeks)} weeks: "
            f"buy before week {missed[0]}."
        )
    else:
        click.echo(f"The target, 95 % within {target}, is held in every week. No machine has to be bought.")
    shown = table("worst week,\n95 % within", "difference", "change")
    shown.add_row(_wait(found.p95_h), "", "as it is")
    for one in found.additions:
        shown.add_row(
            _wait(one.p95_h), _difference(one.p95_h, found.p95_h), f"one more {_bought(one, currency)}"
        )
    for factor, p95_h in found.growth.items():
        held = "" if p95_h <= assumed.target_h else ": target missed"
        shown.add_row(_wait(p95_h), _difference(p95_h, found.p95_h), f"{factor:g} times the students{held}")
    show(shown)
    for number, one in enumerate(found.steps):
        words = "Buy one" if not number else "Then one more"
        click.echo(f"{words} {_bought(one, currency)}: 95 % within {_wait(one.p95_h)} in the worst week.")
    if found.steps and found.steps[-1].p95_h > assumed.target_h:
        click.echo(f"That does not hold {target} yet; more than {len(found.steps)} machines were not tried.")


def _bought(one: Addition, currency: str) -> str:
    return one.kind if one.price is None else f"{one.kind} for {one.price:,.0f} {currency}"


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
