"""`grader bench strategies`: two prompts on two machines, in every way that is known."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

import click


@click.command("strategies")
@click.option(
    "--quick", is_flag=True, help="Less of everything: a minute or two instead of a quarter of an hour."
)
@click.option("--limit", type=click.FloatRange(min=0), help="Seconds of measuring at most, about.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write JSON and plots into this folder. docs/plots feeds docs/hybrid.md; then run scripts/docs.",
)
@click.option("--json", "as_json", is_flag=True)
def bench_strategies(quick: bool, limit: float | None, out: Path | None, as_json: bool) -> None:
    """Prompts read and answers written by two machines: the ways beside each other and the arithmetic."""
    from bench.engines_sides import BenchmarkBroken
    from bench.strategies import report, run

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception: what was started is ended
    plan = run.QUICK if quick else run.FULL
    if limit is not None:
        plan = replace(plan, limit_s=limit)
    try:
        found = run.measure(plan, lambda line: click.echo(line, err=True)).as_dict()
    except ModuleNotFoundError as exc:
        raise click.ClickException(f"{exc.name} is not installed: install Grader's mlx extra.") from exc
    except BenchmarkBroken as exc:
        raise click.ClickException(str(exc)) from exc
    if out:
        for path in report.write(found, out):
            click.echo(f"wrote {path}", err=True)
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(report.lines(found)))
