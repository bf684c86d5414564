"""`grader drain`: taking a machine out of service and back, without losing what it does."""

from __future__ import annotations

import threading
import time

import click

from cli.commands.admin import writing
from cli.settings import Settings
from grading.broker.dispatch import Dispatch, open_dispatch
from grading.broker.heartbeats import DEAD_AFTER_S
from grading.broker.machine_status import MachineState
from grading.domain.errors import GraderError
from grading.store.reporting import operations

BY = "cli"
LOOK_S = 0.5


@click.command()
@click.argument("machine")
@click.option("--back", is_flag=True, help="Take the machine in again.")
@click.option("--why", default="", help="Why it is out; shown on the page Machines.")
@click.option(
    "--wait",
    "patience_s",
    type=click.FloatRange(0),
    default=900,
    show_default=True,
    help="Seconds it may take to finish.",
)
@click.pass_obj
def drain(settings: Settings, machine: str, back: bool, why: str, patience_s: float) -> None:
    """Take MACHINE out: it gets nothing new, and this returns when it has finished what it had."""
    settings.config.machine(machine)
    with writing(settings) as session:
        out = operations.set_drained(session, machine, BY, out=not back, why=why)
    dispatch = open_dispatch(settings.running)
    if not dispatch.tell_out(out):
        click.echo("Redis is away; the machine hears of it when Redis is back.")
        return
    if back:
        _wait_back(dispatch, machine)
    else:
        _wait_out(dispatch, machine, patience_s)


def _wait_back(dispatch: Dispatch, machine: str) -> None:
    """Return when the machine has heard it, with its next beat."""
    end, pause = time.monotonic() + DEAD_AFTER_S, threading.Event()
    while (state := _state(dispatch, machine)).drained and time.monotonic() < end:
        pause.wait(LOOK_S)
    dispatch.release()
    click.echo(
        f"{machine} is back{' and takes work again' if state.alive else '; its worker is not running'}."
    )


def _wait_out(dispatch: Dispatch, machine: str, patience_s: float) -> None:
    """Return when the machine has heard it and does nothing any more."""
    end, told, pause = time.monotonic() + patience_s, -1, threading.Event()
    while True:
        state = _state(dispatch, machine)
        if not state.alive:
            if dispatch.backlog() is None:
                raise GraderError(f"Redis is away: nobody knows what {machine} still does. It stays out.")
            click.echo(f"{machine} is not running; it gets nothing when it starts again.")
            return
        if state.drained and state.busy == 0:
            click.echo(f"{machine} is out and does nothing any more. Back: grader drain {machine} --back")
            return
        if state.busy not in (0, told):
            told = state.busy
            click.echo(f"{machine} finishes {told} run{'' if told == 1 else 's'} …")
        if time.monotonic() >= end:
            raise GraderError(
                f"{machine} still works on {state.busy} run(s) after {patience_s:g} s. It stays out; "
                "wait longer with --wait, or stop its worker: what it has goes to others."
            )
        pause.wait(LOOK_S)


def _state(dispatch: Dispatch, machine: str) -> MachineState:
    return next(state for state in dispatch.machines() if state.name == machine)
