"""`grader bench engines`: runs the benchmark of engines and prints its figures."""

from __future__ import annotations

import ctypes.util
import json
import os
import sys
from dataclasses import replace

import click

from bench.model_servers import ending_in_order


@click.command("engines")
@click.option("--models", default="tiny,24m", show_default=True, help="Models, separated by commas.")
@click.option("--quick", is_flag=True, help="Short benchmark of one minute instead of nine.")
@click.option(
    "--blas",
    type=click.Choice(["openblas", "as-is"]),
    default="openblas",
    show_default=True,
    help="BLAS on Linux CPUs: OpenBLAS if installed, which is far faster, or the one of mlx.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(models: str, quick: bool, blas: str, as_json: bool) -> None:
    """Compare the mlx engine with mlx_lm.server.

    It measures batches, the prefix cache and schemas, and checks that the tokens are the same.
    """
    if blas == "openblas":
        _begin_with_openblas()
    from bench.engines import benchmark, report, systems

    plan = replace(benchmark.QUICK if quick else benchmark.FULL, models=tuple(models.split(",")))
    if unknown := set(plan.models) - set(benchmark.FULL.models):
        raise click.BadParameter(f"{min(unknown)!r} is not one of {', '.join(benchmark.FULL.models)}.")
    try:
        with ending_in_order():
            figures = benchmark.measure(plan, lambda line: click.echo(line, err=True))
    except ModuleNotFoundError as exc:
        raise click.ClickException(f"{exc.name} is not installed. Install Grader's extra mlx.") from exc
    except systems.BenchmarkBroken as exc:
        raise click.ClickException(str(exc)) from exc
    if as_json:
        click.echo(json.dumps(figures.as_dict(), indent=2))
    else:
        click.echo("\n".join(report.lines(figures)))
    if figures.broken or figures.failed:
        raise SystemExit(1)


def _begin_with_openblas() -> None:
    """Begin this process again with OpenBLAS before all other libraries, where it is there and not yet so."""
    loaded = os.environ.get("LD_PRELOAD", "")
    library = ctypes.util.find_library("openblas") if sys.platform == "linux" else None
    if library is None or "openblas" in loaded:
        return
    os.environ["LD_PRELOAD"] = f"{library}:{loaded}".rstrip(":")
    os.execv(sys.executable, [sys.executable, "-m", "cli", *sys.argv[1:]])  # noqa: S606 - the same program
