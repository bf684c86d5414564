"""What `grader assignment import` prints of an assignment's own solution and starter."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import click

from cli.settings import Settings
from grading.assignments.loader import Assignment
from grading.domain.errors import SandboxUnavailable
from grading.store import Store, schema
from workers.sandbox.backends import open_sandbox
from workers.sandbox.import_scores import Score, contents, decided, require_proven, scores
from workers.sandbox.runner import Lab, Shelf
from workers.sandbox.runtimes import find_runtime
from workers.sandbox.session import Trials


def tried(settings: Settings, read: Assignment, *, refuse: bool) -> None:
    """Run solution and starter through the rubric and print what they earn. Raises RubricNotProven."""
    if not (read.solution or read.starter):
        click.echo("There is neither a solution nor a starter: nobody tried this rubric yet.")
        return
    checks = settings.config.checks
    with closing(Store(settings.config.database.url)) as store, Shelf() as shelf:
        schema.require_newest(store)
        sandbox = open_sandbox(checks.sandbox, engine=checks.engine, image=checks.image)
        trials = Trials(sandbox, lambda language: find_runtime(language, checks))
        if sandbox.problem():
            click.echo(f"⚠ Nothing was run, so checks that need a run do not count: {sandbox.problem()}")
        try:
            found = scores(read, Lab(store, trials, shelf, contents(read)), checks.limits)
        except SandboxUnavailable as error:
            click.echo(f"⚠ Solution and starter could not be run: {error.message}")
            return
    for line in table(read, found):
        click.echo(line)
    if refuse:
        require_proven(found)


def table(read: Assignment, found: Sequence[Score]) -> list[str]:
    """Points by criterion, the whole, and what no check decides."""
    by_checks, open_ones = decided(read, found)
    wide = max((len(one.id) for one in by_checks), default=0)
    heads = [one.work for one in found]
    lines = [f"{'':{wide}}  " + "  ".join(f"{head:>{_width(head)}}" for head in heads)]
    for criterion in by_checks:
        cells = [_cell(criterion.points * one.shares.get(criterion.id, 0), criterion.points) for one in found]
        lines.append(_line(criterion.id, wide, heads, cells))
    totals = [f"{_cell(one.points, one.most)} ({one.share:.0%})" for one in found]
    lines = [*lines, _line("all", wide, heads, totals)] if by_checks else ["No check decides any criterion."]
    if open_ones:
        names = ", ".join(f"{one.id} ({one.points:g})" for one in open_ones)
        lines.append(f"Not counted, as a model or a person decides: {names}")
    return lines + _losses(found)


def _losses(found: Sequence[Score]) -> list[str]:
    """Where the solution itself loses points."""
    return [f"⚠ solution: {line}" for one in found if one.work == "solution" for line in one.lost]


def _line(name: str, wide: int, heads: Sequence[str], cells: Sequence[str]) -> str:
    padded = (f"{cell:>{_width(head)}}" for head, cell in zip(heads, cells, strict=True))
    return f"{name:{wide}}  " + "  ".join(padded)


def _width(head: str) -> int:
    return max(len(head), 20)


def _cell(points: float, most: float) -> str:
    return f"{round(points, 2):g} / {most:g}"
