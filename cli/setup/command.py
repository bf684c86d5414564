"""The command `grader setup`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click

from cli.setup import machines, redis, system, undo
from cli.setup.host import Host, SetupError
from cli.setup.machines import Named
from cli.setup.steps import Answers, Setup

LOCK = Path("/run/grader-setup.lock")
CHECKOUT = Path(__file__).resolve().parents[2]


@click.command()
@click.option("--machine", "named", multiple=True, metavar="NAME=USER@HOST",
              help="Add a machine to config.toml; can be repeated.")  # fmt: skip
@click.option("--engine", type=click.Choice(list(machines.STAGES)), default="ollama", show_default=True,
              help="Engine of added machines; rules needs no model.")  # fmt: skip
@click.option("--address", help="Name or address of this server for machines; detected by default.")
@click.option("--r/--no-r", default=None, help="Install R, for courses that use it.")
@click.option("--sample", is_flag=True, help="Import the sample assignment.")
@click.option("--yes", is_flag=True, help="Ask no questions; use the options and the defaults.")
@click.option("--dry-run", is_flag=True, help="Only print the steps; change nothing.")
@click.option("--undo", "undone", is_flag=True, help="Remove what setup created, except data and secrets.")
@click.option("--data", is_flag=True, help="With --undo: also remove database, secrets and users.")
def setup(
    named: tuple[str, ...],
    engine: str,
    address: str | None,
    r: bool | None,
    sample: bool,
    yes: bool,
    dry_run: bool,
    undone: bool,
    data: bool,
) -> None:
    """Set up or update this server, on Debian or Ubuntu.

    It installs packages and creates users, secrets, certificates, Redis, the database, services and the first
    administrator. Run it as root. Running it again changes only what is different, also after an interruption
    or an update of Grader.
    """
    if data and not undone:
        raise click.UsageError("--data needs --undo.")
    host = Host.at(Path("/"))
    with nullcontext() if dry_run else alone():
        if undone:
            _undo(host, data, yes, dry_run)
            return
        known = host.journal.answers
        answers = Answers(
            address=address or known.get("address") or redis.own_address(),
            machines=tuple(Named.read(one) for one in named),
            engine=engine,
            r=known.get("r", False) if r is None else r,
            sample=sample,
        )
        _set_up(host, answers if yes or dry_run else _asked(answers), yes, dry_run)


def _set_up(host: Host, answers: Answers, yes: bool, dry_run: bool) -> None:
    one = Setup(host, answers, CHECKOUT, _say, (lambda _question: False) if yes else click.confirm)
    steps = one.steps()
    for number, (name, does, step) in enumerate(steps, 1):
        click.echo(f"{number}/{len(steps)} {name}: {does}")
        if not dry_run:
            _say(step())
    if not dry_run:
        click.echo("\nNext:")
        for line in one.next():
            click.echo(f"  {line}")


@contextmanager
def alone() -> Iterator[None]:
    """Only one setup at a time. Raises SetupError."""
    if os.geteuid() != 0:
        raise SetupError(system.NOT_ROOT)
    with LOCK.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError("Another `grader setup` is running. Wait until it ends.") from None
        yield


def _say(text: str) -> None:
    click.echo(f"    {text}")


def _asked(answers: Answers) -> Answers:
    """The answers after a question each; the enter key takes the default."""
    address = click.prompt("Address by which machines reach this server", answers.address)
    named = list(answers.machines)
    while text := click.prompt("Add a machine, NAME=USER@HOST (Enter: none)", "", show_default=False):
        named.append(Named.read(text))
    r = click.confirm("Install R, for courses that use it?", answers.r)
    sample = click.confirm("Import the sample assignment?", answers.sample)
    click.confirm("Set up this computer now?", default=True, abort=True)
    return Answers(address, tuple(named), answers.engine, r, sample)


def _undo(host: Host, data: bool, yes: bool, dry_run: bool) -> None:
    steps = undo.steps(host, data)
    if steps and data and not (yes or dry_run):
        click.confirm("Delete all submissions, grades and secrets of this server?", abort=True)
    failed = 0
    for number, (does, step) in enumerate(steps, 1):
        click.echo(f"{number}/{len(steps)} {does}")
        try:
            if not dry_run:
                step()
        except (SetupError, OSError) as error:
            failed += 1
            _say(f"! {error}")
    for line in undo.left(host, data):
        click.echo(line)
    if failed:
        raise SetupError("Some steps failed, see ! above. Retry with `scripts/setup --undo`.")
