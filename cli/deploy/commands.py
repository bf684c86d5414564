"""The command `grader deploy`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from cli.deploy.deployment import Deployment, Options, differences
from cli.deploy.file_transfer import Progress, size
from cli.deploy.overview import Overview
from cli.deploy.ssh import MachineError, remote_of
from cli.settings import Settings, complete_machine
from grading.config.settings import Machine


@dataclass
class TransferOutput:
    """Progress of a copy: in place on standard error if that is a terminal, else a line at every quarter."""

    terminal: bool
    _quarter: int = 0
    _percent: int = -1

    def line(self, text: str) -> None:
        """Something that a step says while it works."""
        click.echo(f"    {text}")

    def progress(self, done: int, total: int) -> None:
        """So many bytes of so many were sent."""
        share = done / total if total else 1.0
        if self.terminal:
            self._in_place(int(share * 100), size(total), ended=done >= total)
        elif int(share * 4) != self._quarter and total > 1e8:
            self.line(f"{share:.0%} of {size(total)}")
        self._quarter = int(share * 4)

    def _in_place(self, percent: int, of: str, *, ended: bool) -> None:
        if percent != self._percent or ended:
            click.echo(f"    {percent:3}% of {of}", nl=False, err=True)
            click.echo("\n" if ended else "\r", nl=False, err=True)
        self._percent = -1 if ended else percent


@click.command()
@click.argument("machine", required=False, shell_complete=complete_machine)
@click.option(
    "--all", "everywhere", is_flag=True, help="Deploy to all machines with [machines.ssh], in parallel."
)
@click.option(
    "--rollback", is_flag=True, help="Restore the previous release with its configuration and secrets."
)
@click.option("--dry-run", is_flag=True, help="Only print the steps; change nothing.")
@click.option("--offline", is_flag=True, help="For machines without internet: copy wheels from here.")
@click.option(
    "--model-folder",
    "model_folders",
    multiple=True,
    metavar="[MODEL=]PATH",
    help="Copy models from this folder: an MLX model, a Hugging Face cache or Ollama's models.",
)
@click.option(
    "--environment", metavar="PATH", help="Use this Python environment on the machine; install none."
)
@click.option(
    "--wheels",
    type=click.Path(path_type=Path),
    default="var/wheels",
    show_default=True,
    help="Folder of wheels on this computer, for --offline.",
)
@click.option("--quick", is_flag=True, help="Compare model files by size only, not by hash.")
@click.option(
    "--wait",
    "wait_s",
    type=float,
    default=60.0,
    show_default=True,
    help="Seconds to wait for a heartbeat.",
)
@click.pass_obj
def deploy(
    settings: Settings,
    machine: str | None,
    everywhere: bool,
    rollback: bool,
    dry_run: bool,
    offline: bool,
    model_folders: tuple[str, ...],
    environment: str | None,
    wheels: Path,
    quick: bool,
    wait_s: float,
) -> None:
    """Install or update Grader on MACHINE over SSH.

    It copies the program, installs packages, checks models, and starts the worker as a service. The machine's
    Redis URL comes from GRADER_REDIS_URL_<MACHINE> (DGX_SPARK_1 for dgx-spark-1), else from GRADER_REDIS_URL.
    Running it again changes only what is different. A worker is restarted only if something changed, after it
    has finished or returned its runs. Without a heartbeat within --wait, the previous release is restored.
    """
    if everywhere == bool(machine):
        raise click.UsageError("Give one MACHINE or --all.")
    options = Options(environment, offline, model_folders, wheels, quick, wait_s)
    if machine:
        _one(settings, settings.config.machine(machine), options, rollback, dry_run)
    else:
        _all(settings, options, rollback, dry_run)


def _one(settings: Settings, machine: Machine, options: Options, rollback: bool, dry_run: bool) -> None:
    output = TransferOutput(sys.stderr.isatty())
    with _deployment(settings, machine, options, output.line, output.progress) as one:
        steps = one.steps_back() if rollback else one.steps()
        for number, step in enumerate(steps, 1):
            name, does, _ = step
            click.echo(f"{number}/{len(steps)} {name}: {does if dry_run else one.run(step)}")
        if not dry_run:
            click.echo(f"{machine.name}: {_summary(one)}")
            _compare(settings, [one])


def _all(settings: Settings, options: Options, rollback: bool, dry_run: bool) -> None:
    """Every machine at the same time; what fails on one leaves the others alone."""
    machines = [one for one in settings.config.machines if one.ssh is not None]
    if not machines:
        raise MachineError(
            "No machine in config.toml has [machines.ssh]. See docs/how-to/administrators/cluster.md."
        )
    done: list[Deployment] = []
    with Overview([one.name for one in machines], live=sys.stdout.isatty()) as overview:

        def work(machine: Machine) -> None:
            line, quiet = overview.saying(machine.name), lambda _done, _total: None
            with _deployment(settings, machine, options, line, quiet) as one:
                steps = one.steps_back() if rollback else one.steps()
                for number, step in enumerate(steps, 1):
                    name, does, _ = step
                    overview.begin(machine.name, f"{number}/{len(steps)} {name}")
                    overview.result(machine.name, does if dry_run else one.run(step))
                if not dry_run:
                    overview.finish(machine.name, _summary(one))
                    done.append(one)

        failed = overview.all_at_once(machines, work)
    if done:
        _compare(settings, done)
    if failed:
        raise MachineError(f"{failed} of {len(machines)} machines failed.")


def _deployment(
    settings: Settings, machine: Machine, options: Options, say: Callable[[str], None], progress: Progress
) -> Deployment:
    return Deployment(settings, machine, remote_of(machine), options, os.environ, say, progress)


def _summary(one: Deployment) -> str:
    return f"{', '.join(one.changed)} changed" if one.changed else "nothing changed"


def _compare(settings: Settings, deployed: list[Deployment]) -> None:
    """Say which models have different weights on machines that were deployed and others."""
    for difference in differences(settings, deployed):
        click.echo(f"! {difference.message}\n  → {difference.remedy}")
