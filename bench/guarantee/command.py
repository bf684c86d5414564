"""`grader bench guarantee`: planted graders beside each other, and what more marks bring."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from bench.guarantee.graders import GRADERS
from bench.guarantee.plot import curves
from bench.guarantee.simulation import DriftFound, Simulated, simulate, simulate_drift
from bench.guarantee.submissions import SimulatedSubmissions, planted_classes, simulate_submissions
from grading.statistics.release_guarantee import Target

PREDICTED = 0.75
"""From this area under the curve on the score is said to predict a grader's errors."""


def at_most(share: float, classes: int) -> float:
    """The highest share of classes that chance explains where `share` is the true one: 3 standard errors."""
    return share + 3 * math.sqrt(share * (1 - share) / classes)


def predicted(rows: Sequence[Simulated]) -> list[str]:
    """The graders whose errors the score predicts."""
    return [row.grader for row in rows if row.predicts >= PREDICTED]


def of_oracle(rows: Sequence[Simulated]) -> float:
    """The mean over the graders whose errors the score predicts."""
    names = predicted(rows)
    return math.fsum(row.of_oracle or 0.0 for row in rows if row.grader in names) / len(names)


def table(rows: Sequence[Simulated]) -> str:
    """For people, as Markdown."""
    lines = ["| grader | score predicts | target exceeded | released | unread | oracle | of the oracle |",
             "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for row in rows:
        of = "–" if row.of_oracle is None else f"{row.of_oracle:.0%}"
        lines.append(
            f"| {row.grader} | {row.predicts:.2f} | {row.exceeded / row.classes:.1%} | {row.released:.0%}"
            f" | {row.unread:.0%} | {row.oracle:.0%} | {of} |"
        )
    return "\n".join(lines)


def submissions_table(rows: Sequence[SimulatedSubmissions]) -> str:
    """For people, as Markdown."""
    lines = ["| grader | criteria | errors | target exceeded | released | unread | oracle | of the oracle |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for row in rows:
        lines.append(
            f"| {row.grader} | {row.criteria} | {row.errors} | {row.exceeded / row.classes:.1%}"
            f" | {row.released:.0%} | {row.unread:.0%} | {row.oracle:.0%} | {row.of_oracle or 0.0:.0%} |"
        )
    return "\n".join(lines)


def drift_line(found: DriftFound, what: str = "Drift") -> str:
    """For people."""
    return (
        f"{what}: noticed in time in {found.in_time / found.classes:.1%} of classes, after {found.median}"
        f" submissions (median); false alarms in {found.false_alarms / found.classes:.1%}."
    )


@click.command("guarantee")
@click.option("--classes", default=2_000, show_default=True, help="Classes of each planted grader.")
@click.option("--size", default=400, show_default=True, help="Levels, or submissions, of a class.")
@click.option("--marks", "marks", multiple=True, type=int, default=(100,), show_default=True,
              help="Levels that a person marks; several for a curve.")  # fmt: skip
@click.option("--share", default=0.05, show_default=True, help="Share of released levels that may be wrong.")
@click.option("--seed", default=1, show_default=True, help="Of all that is drawn.")
@click.option("--criteria", type=click.IntRange(2), help="Release whole submissions with so many criteria.")
@click.option("--together", is_flag=True,
              help="With --criteria: mark single levels, for a target of all criteria together.")  # fmt: skip
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="File for the curves, as SVG.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(
    classes: int, size: int, marks: Sequence[int], share: float, seed: int, criteria: int | None,
    together: bool, plot: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Prove what may be released in simulated classes, and count how often that is wrong."""
    if criteria is None:
        return _levels(classes, size, marks, Target(share), seed, plot, as_json)
    for one in marks:
        rows = [simulate_submissions(planted, classes, size, one, Target(share), seed, together=together)
                for planted in planted_classes(criteria)]  # fmt: skip
        if as_json:
            click.echo(json.dumps({"marks": one, "classes": [asdict(row) for row in rows]}))
        else:
            what = "single levels" if together else "submissions"
            click.echo(f"\n{one} {what} of {size} submissions marked, {classes} classes of each\n")
            click.echo(submissions_table(rows))


def _levels(
    classes: int, size: int, marks: Sequence[int], target: Target, seed: int, plot: Path | None, as_json: bool
) -> None:
    found = {one: [simulate(grader, classes, size, one, target, seed) for grader in GRADERS] for one in marks}
    drift = simulate_drift(classes, size, seed)
    late = simulate_drift(classes, size, seed, opinions=True)
    if plot:
        plot.write_text(curves(found, predicted(found[max(marks)])), encoding="utf-8")
    if as_json:
        rows = {str(one): [asdict(row) for row in of] for one, of in found.items()}
        click.echo(json.dumps({"marks": rows, "drift": asdict(drift), "late_opinions": asdict(late)}))
        return
    for one, of in found.items():
        click.echo(f"\n{one} marks in a class of {size}, {classes} classes of each grader\n\n{table(of)}")
        click.echo(f"\nWhere the score predicts errors, {of_oracle(of):.0%} of the oracle (mean).")
    click.echo(f"\n{drift_line(drift)}\n{drift_line(late, 'The same with late second opinions')}")
