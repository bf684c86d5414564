"""The command `grader deploy`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from cli.deploy.deployment import Deployment, Options
from cli.deploy.file_transfer import size
from cli.deploy.ssh import remote_of
from cli.settings import Settings


@dataclass
class TransferOutput:
    """How far a copy is: in place on a terminal, else a line at every quarter."""

    terminal: bool
    _quarter: int = 0

    def line(self, text: str) -> None:
        """Something that a step says while it works."""
        click.echo(f"    {text}")

    def progress(self, done: int, total: int) -> None:
        """So many bytes of so many were sent."""
        share = done / total if total else 1.0
        if self.terminal:
            end = "\r" if done < total else "\n"
            click.echo(f"    {share:4.0%} of {size(total)}", nl=False)
            click.echo(end, nl=False)
        elif int(share * 4) != self._quarter and total > 1e8:
            self.line(f"{share:.0%} of {size(total)}")
        self._quarter = int(share * 4)


@click.command()
@click.argument("machine")
@click.option("--dry-run", is_flag=True, help="Only print the steps; nothing is reached or changed.")
@click.option("--offline", is_flag=True, help="The machine has no internet: wheels come from this computer.")
@click.option(
    "--model-folder",
    "model_folders",
    multiple=True,
    metavar="[MODEL=]PATH",
    help="Copy models from a folder here: an MLX model, a Hugging Face cache, or Ollama's models.",
)
@click.option(
    "--environment", metavar="PATH", help="An environment that is already on the machine; none is made."
)
@click.option(
    "--wheels",
    type=click.Path(path_type=Path),
    default="var/wheels",
    show_default=True,
    help="Where wheels for machines without internet are kept on this computer.",
)
@click.option("--quick", is_flag=True, help="Compare sizes of model files only, not their hashes.")
@click.option(
    "--wait", "wait_s", type=float, default=60.0, show_default=True, help="Seconds to wait for a heartbeat."
)
@click.pass_obj
def deploy(
    settings: Settings,
    machine: str,
    dry_run: bool,
    offline: bool,
    model_folders: tuple[str, ...],
    environment: str | None,
    wheels: Path,
    quick: bool,
    wait_s: float,
) -> None:
    """Set up MACHINE over SSH, or bring it up to date: program, packages, settings, models, service.

    The machine's address of Redis comes from GRADER_REDIS_URL_<MACHINE> (DGX_SPARK_1 for dgx-spark-1), else
    from GRADER_REDIS_URL. Running it again changes only what is different; what runs is started again only
    then, after it has finished or handed back its work.
    """
    output = TransferOutput(sys.stdout.isatty())
    chosen = settings.config.machine(machine)
    options = Options(environment, offline, model_folders, wheels, quick, wait_s)
    one = Deployment(settings, chosen, remote_of(chosen), options, os.environ, output.line, output.progress)
    steps = one.steps()
    for number, (name, does, step) in enumerate(steps, 1):
        click.echo(f"{number}/{len(steps)} {name}: {does if dry_run else step()}")
    if not dry_run:
        click.echo(f"{machine}: {', '.join(one.changed) + ' changed' if one.changed else 'nothing changed'}")
        for difference in one.differences():
            click.echo(f"! {difference.message}\n  → {difference.remedy}")
