"""`grader bench guarantee`: planted graders beside each other, and what more marks bring."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

import click

from bench.guarantee.graders import GRADERS
from bench.guarantee.simulation import DriftFound, Simulated, simulate, simulate_drift
from grading.statistics.release_guarantee import Target

PREDICTED = 0.75
"""From this area under the curve on the score is said to predict a grader's errors."""


def at_most(share: float, classes: int) -> float:
    """The highest share of classes that chance explains where `share` is the true one: 3 standard errors."""
    return share + 3 * math.sqrt(share * (1 - share) / classes)


def of_oracle(rows: Sequence[Simulated]) -> float:
    """The mean over the graders whose errors the score predicts."""
    found = [row.of_oracle for row in rows if row.predicts >= PREDICTED and row.of_oracle is not None]
    return math.fsum(found) / len(found)


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


def drift_line(found: DriftFound) -> str:
    """For people."""
    return (
        f"Drift: noticed in time in {found.in_time / found.classes:.1%} of classes, after {found.median}"
        f" submissions (median); false alarms in {found.false_alarms / found.classes:.1%}."
    )


@click.command("guarantee")
@click.option("--classes", default=2_000, show_default=True, help="Classes of each planted grader.")
@click.option("--size", default=400, show_default=True, help="Levels of a class.")
@click.option("--marks", "marks", multiple=True, type=int, default=(100,), show_default=True,
              help="Levels that a person marks; several for a curve.")  # fmt: skip
@click.option("--share", default=0.05, show_default=True, help="Share of released levels that may be wrong.")
@click.option("--seed", default=1, show_default=True, help="Of all that is drawn.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(classes: int, size: int, marks: Sequence[int], share: float, seed: int, as_json: bool) -> None:
    """Prove what may be released in simulated classes, and count how often that is wrong."""
    target = Target(share)
    curves = {
        one: [simulate(grader, classes, size, one, target, seed) for grader in GRADERS] for one in marks
    }
    drift = simulate_drift(classes, size, seed)
    if as_json:
        rows = {str(one): [asdict(row) for row in found] for one, found in curves.items()}
        click.echo(json.dumps({"marks": rows, "drift": asdict(drift)}))
        return
    for one, found in curves.items():
        click.echo(f"\n{one} marks in a class of {size}, {classes} classes of each grader\n\n{table(found)}")
        click.echo(f"\nWhere the score predicts errors, {of_oracle(found):.0%} of the oracle (mean).")
    click.echo(f"\n{drift_line(drift)}")
