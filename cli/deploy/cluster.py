"""The commands `grader cluster`: the workers of all machines in reach of SSH."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from threading import Event

import click

from cli.deploy.file_transfer import program
from cli.deploy.models import Wanted, look, wanted
from cli.deploy.services import Heartbeats, MachineService, services_of
from cli.deploy.ssh import MachineError, plain, remote_of
from cli.settings import Settings, complete_machine
from cli.tables import show as show_table
from cli.tables import table
from grading.config.settings import Machine

WAIT_S = 60.0
LOG_LINES = 100
MACHINES = click.argument("machines", nargs=-1, metavar="[MACHINE]...", shell_complete=complete_machine)
WAIT = click.option(
    "--wait",
    "wait_s",
    type=float,
    default=WAIT_S,
    show_default=True,
    help="Seconds to wait for a heartbeat.",
)


@click.group()
def cluster() -> None:
    """Show, start and stop workers over SSH.

    The commands apply to all machines in config.toml that have [machines.ssh], or to those that are named.
    """


# --- status ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A machine as `grader cluster status` shows it; `ok` when nothing about it needs a person."""

    machine: str
    ssh: str
    service: str
    heartbeat: str
    version: str
    model: str
    ok: bool
    problems: tuple[str, ...] = ()
    """Whole sentences, which stand below the table."""


@cluster.command()
@MACHINES
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_obj
def status(settings: Settings, machines: tuple[str, ...], as_json: bool) -> None:
    """Show SSH, service, heartbeat, version and models of machines.

    Exits with status 1 if a machine has a problem.
    """
    chosen = _chosen(settings, machines)
    version, _ = program()
    try:
        with Heartbeats(settings.config) as heartbeats:
            ages = {name: min(of.values()) for name, of in heartbeats.ages().items()}
        away = ""
    except MachineError as error:
        ages, away = {}, error.message
    with ThreadPoolExecutor(len(chosen)) as pool:
        rows = list(pool.map(lambda m: _row(m, version, ages.get(m.name), bool(away)), chosen))
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        rows_shown = table(
            "machine", "ssh", "service", "heartbeat", "version", "model", fold=("service", "version")
        )
        for row in rows:
            rows_shown.add_row(row.machine, row.ssh, row.service, row.heartbeat, row.version, row.model)
        show_table(rows_shown)
        for row in rows:
            for problem in row.problems:
                click.echo(f"✗ {row.machine}: {problem}")
    if away:
        raise MachineError(away)
    if not all(row.ok for row in rows):
        raise MachineError("Some machines have problems, see above.")


def _row(machine: Machine, version: str, age: float | None, away: bool) -> Row:
    heartbeat = "unknown" if away else "none" if age is None else f"{age:.0f} s ago"
    if machine.ssh is None:
        return Row(machine.name, "not managed", "", heartbeat, "", "", age is not None)
    services = services_of(machine, remote_of(machine))
    try:
        states = [service.do("state") for service in services]
    except MachineError as error:
        return Row(machine.name, "fails", "unknown", heartbeat, "", "", False, (error.message,))
    models = [_model(services[0], one) for one in wanted(machine)]
    texts = [state.text if n == 0 else f"{services[n].part} {state.text}" for n, state in enumerate(states)]
    running, state = all(one.running for one in states), states[0]
    same = state.version == version
    version_text = f"{state.version} (as here)" if same else f"{state.version} (here: {version})"
    return Row(
        machine=machine.name,
        ssh="ok",
        service="\n".join(texts),
        heartbeat=heartbeat,
        version=version_text if state.version else "",
        model="\n".join(one.text for one in models) or "none needed",
        ok=running and age is not None and same and all(one.ok for one in models),
        problems=tuple(one.problem for one in models if one.problem),
    )


@dataclass(frozen=True)
class _ModelState:
    """A model's state by name and size, whether it is there, and why that is not known."""

    text: str
    ok: bool
    problem: str = ""


def _model(service: MachineService, one: Wanted) -> _ModelState:
    try:
        found = look(service.remote, one, quick=True)
    except MachineError as error:
        return _ModelState(f"{one}: unknown", ok=False, problem=f"{one}: {error.message}")
    return _ModelState(f"{one}: {found['state']}", ok=found["state"] == "present")


# --- start, stop, restart -------------------------------------------------------------------------


@cluster.command()
@MACHINES
@WAIT
@click.pass_obj
def start(settings: Settings, machines: tuple[str, ...], wait_s: float) -> None:
    """Start workers and wait for their heartbeats."""
    with Heartbeats(settings.config) as heartbeats:

        def one(service: MachineService) -> str:
            if service.part == "prefill":
                return "listening" if service.listen(wait_s).changed else "already running"
            state, seconds = service.start(heartbeats, wait_s)
            return f"started, heartbeat after {seconds:.1f} s" if state.changed else "already running"

        _all_at_once(_managed(settings, machines), one)


@cluster.command()
@MACHINES
@click.pass_obj
def stop(settings: Settings, machines: tuple[str, ...]) -> None:
    """Stop workers.

    Each finishes or returns its runs first, within grace_s.
    """

    def one(service: MachineService) -> str:
        begun = time.monotonic()
        changed = service.do("stop").changed
        return f"stopped after {time.monotonic() - begun:.1f} s" if changed else "was not running"

    _all_at_once(_managed(settings, machines), one)


@cluster.command()
@MACHINES
@WAIT
@click.option("--together", is_flag=True, help="Restart all machines in parallel.")
@click.pass_obj
def restart(settings: Settings, machines: tuple[str, ...], wait_s: float, together: bool) -> None:
    """Restart workers, one machine at a time.

    Each finishes or returns its runs first. If a machine sends no heartbeat, the others are not restarted.
    """
    with Heartbeats(settings.config) as heartbeats:

        def one(service: MachineService) -> str:
            if service.part == "prefill":
                service.listen(wait_s, again=True)
                return "restarted, listening"
            _, seconds = service.start(heartbeats, wait_s, again=True)
            return f"restarted, heartbeat after {seconds:.1f} s"

        services = _managed(settings, machines)
        if together:
            _all_at_once(services, one)
            return
        for index, service in enumerate(services):
            try:
                _say(service, one(service))
            except MachineError as error:
                left = ", ".join(s.label for s in services[index + 1 :])
                rest = f" Not restarted: {left}." if left else ""
                raise MachineError(f"{error.message}{rest}") from None


# --- logs -----------------------------------------------------------------------------------------


@cluster.command()
@MACHINES
@click.option("-f", "--follow", is_flag=True, help="Follow the logs until Ctrl-C.")
@click.pass_obj
def logs(settings: Settings, machines: tuple[str, ...], follow: bool) -> None:
    """Show the last 100 lines of the workers' logs."""
    services, stopped = _managed(settings, machines), Event()

    def one(service: MachineService) -> None:
        with service.logs(LOG_LINES, follow=follow) as session:
            for line in session.lines(stopped):
                text = plain(line.decode("utf-8", "replace").rstrip())
                click.echo(f"{service.label}: {text}" if len(services) > 1 else text)
            if not stopped.is_set():
                service.remote.ended(session)

    _all_at_once(services, one, stopped)


def _chosen(settings: Settings, names: Sequence[str]) -> list[Machine]:
    """The machines of these names, all without any."""
    if not names:
        return list(settings.config.machines)
    return [settings.config.machine(name) for name in dict.fromkeys(names)]


def _managed(settings: Settings, names: Sequence[str]) -> list[MachineService]:
    """The services of machines in reach; without names, those that are not are named and left out."""
    found: list[MachineService] = []
    for machine in _chosen(settings, names):
        if machine.ssh is None and not names:
            click.echo(f"{machine.name}: skipped, it has no [machines.ssh] in config.toml")
        else:
            found += services_of(machine, remote_of(machine))
    if not found:
        raise MachineError(
            "No machine in config.toml has [machines.ssh]. See docs/how-to/administrators/cluster.md."
        )
    return found


def _all_at_once(
    services: Sequence[MachineService],
    do: Callable[[MachineService], str | None],
    stopped: Event | None = None,
) -> None:
    """Do something on all machines; every failure is said, and they count as one at the end.

    `stopped` is set when nobody waits for the rest any more.
    """

    def one(service: MachineService) -> bool:
        try:
            result = do(service)
        except MachineError as error:
            click.echo(f"✗ {error.message}", err=True)
            return False
        if result is not None:
            _say(service, result)
        return True

    with ThreadPoolExecutor(len(services)) as pool:
        try:
            done = list(pool.map(one, services))
        finally:
            if stopped is not None:
                stopped.set()
    if not all(done):
        raise MachineError(f"{done.count(False)} of {len(done)} machines failed.")


def _say(service: MachineService, text: str) -> None:
    click.echo(f"{service.label}: {text}")
