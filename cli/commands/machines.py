"""Commands on machines: their state, draining them, their users of Redis."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict

import click
from rich.table import Table

from cli.commands.admin import writing
from cli.output import counted
from cli.settings import MIN_SECRET, Settings, complete_machine
from cli.tables import show, table
from grading.broker.dispatch import AWAY, Dispatch, open_dispatch
from grading.broker.heartbeats import DEAD_AFTER_S, reason
from grading.broker.machine_status import (
    Condition,
    MachineState,
    StageSpeed,
    an_hour,
    condition,
    weights_warnings,
)
from grading.broker.signing import Keyring
from grading.config.redis_url import on_loopback, watched
from grading.config.settings import Config, Machine
from grading.domain.errors import ConfigError, GraderError
from grading.domain.model_digests import short
from grading.store.reporting import operations


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_obj
def machines(settings: Settings, as_json: bool) -> None:
    """Show machines: heartbeat, slots, models, speed and queues."""
    dispatch = open_dispatch(settings.running)
    states, backlog = dispatch.machines(), dispatch.backlog()
    troubles = weights_warnings(states)
    if backlog is None:
        raise GraderError(f"{_away(dispatch)}. The state of the machines is not known.")
    if as_json:
        rows = [{**asdict(state), "condition": _as_dict(condition(state))} for state in states]
        warnings = [f"{one.message}: {one.remedy}." for one in troubles]
        click.echo(json.dumps({"machines": rows, "queues": backlog, "warnings": warnings}, indent=2))
        return
    show(_table(states))
    for state in states:
        _say_more(state)
    click.echo("queues: " + ", ".join(f"{name} {length}" for name, length in backlog.items()))
    for one in troubles:
        click.echo(f"! {one.message}\n  → {one.remedy}")


def _away(dispatch: Dispatch) -> str:
    refused = "Redis refuses the password in GRADER_REDIS_URL"
    return refused if dispatch.password_refused() else "Redis does not answer"


def _as_dict(how: Condition) -> dict[str, object]:
    circuits = [{**asdict(one), **reason(one.why)} for one in how.circuits]
    more = {"circuits": circuits, "health": how.health, "notes": how.notes}
    return {**asdict(how), **reason(how.why), **more}


def _table(states: list[MachineState]) -> Table:
    rows = table("machine", "role", "state", "busy", "stage", "runs/h", "model")
    for state in states:
        how = condition(state)
        speeds = {one.stage: one for one in how.speeds}
        limit = how.limit if 0 < how.limit < state.slots else state.slots
        first = (state.name, state.role, _state_word(state), f"{state.busy}/{limit}")
        for stage, place in state.stages.items():
            rows.add_row(*first, stage, _rate(speeds.get(stage)), _model(place))
            first = ("", "", "", "")
        if not state.stages:
            rows.add_row(*first)
    return rows


def _state_word(state: MachineState) -> str:
    if not state.alive:
        return "offline"
    return "hung" if state.hung else "drained" if state.drained else "running"


def _rate(speed: StageSpeed | None) -> str:
    if speed is None:
        return "?"
    return f"{an_hour(speed.jobs_per_hour)}{'' if speed.measured else ' ?'}"


def _say_more(state: MachineState) -> None:
    how = condition(state)
    for note in how.notes:
        click.echo(f"{state.name}: {note}")
    if how.gateway_requests:
        click.echo(f"{state.name}: {how.gateway_words}")
    if how.takes or how.why.message:
        takes = f"takes runs from {', '.join(how.takes)}" if how.takes else "takes no runs now"
        click.echo(f"{state.name} {takes}" + (f": {how.why}" if how.why.message else ""))
    for engine, counters in state.engines.items():
        if counters.get("prompt_tokens") and "cached_tokens" in counters:
            cached, prompt = counters["cached_tokens"], counters["prompt_tokens"]
            click.echo(f"{state.name}, {engine}: {cached:,.0f} of {prompt:,.0f} prompt tokens cached")


def _model(place: Mapping[str, str]) -> str:
    digest = f", {short(place['digest'])}" if place.get("digest") else ""
    return f"{place['model']} ({place['engine']}{digest})"


BY = "cli"
LOOK_S = 0.5


@click.command()
@click.argument("machine", shell_complete=complete_machine)
@click.option("--back", is_flag=True, help="Undo: give MACHINE work again.")
@click.option("--stage", default="", help="Only this stage; MACHINE continues with its others.")
@click.option("--why", default="", help="Reason, shown on the page Machines.")
@click.option(
    "--wait",
    "patience_s",
    type=click.FloatRange(0),
    default=900,
    show_default=True,
    help="Longest wait, in seconds.",
)
@click.pass_obj
def drain(settings: Settings, machine: str, back: bool, stage: str, why: str, patience_s: float) -> None:
    """Drain MACHINE: finish its runs and send it no new ones.

    Returns when MACHINE has finished its runs. With --stage, one stage is drained, or resumed after an alarm
    of nightly parity, without waiting.
    """
    of = settings.config.machine(machine)
    if stage:
        _drain_stage(settings, of, stage, back=back, why=why)
        return
    with writing(settings) as session:
        out = operations.set_drained(session, machine, BY, out=not back, why=why)
    dispatch = open_dispatch(settings.running)
    if not dispatch.tell_out(out):
        click.echo(f"{_away(dispatch)}. The change is stored and is sent when Redis answers again.")
        return
    if back:
        _wait_back(dispatch, machine)
    else:
        _wait_out(dispatch, machine, patience_s)


def _drain_stage(settings: Settings, machine: Machine, stage: str, *, back: bool, why: str) -> None:
    """Raises ConfigError where the machine does not have the stage."""
    if stage not in machine.stages and not back:
        raise ConfigError(f"{machine.name} has no stage '{stage}', only: {', '.join(machine.stages)}.")
    with writing(settings) as session:
        out = operations.set_stage_drained(session, machine.name, stage, BY, out=not back, why=why)
    dispatch = open_dispatch(settings.running)
    heard = dispatch.tell_out(out)
    if heard and back:
        dispatch.release()
    undo = "" if back else f" Undo: grader drain {machine.name} --stage {stage} --back"
    click.echo(f"{stage} on {machine.name} is {'resumed' if back else 'drained'}.{undo}")
    if not heard:
        click.echo(f"{_away(dispatch)}. The change is stored and is sent when Redis answers again.")


def _wait_back(dispatch: Dispatch, machine: str) -> None:
    """Return when the machine has heard it, with its next heartbeat."""
    end, pause = time.monotonic() + DEAD_AFTER_S, threading.Event()
    while (state := _state(dispatch, machine)).drained and time.monotonic() < end:
        pause.wait(LOOK_S)
    dispatch.release()
    click.echo(f"{machine} takes work again{'' if state.alive else ' when its worker runs'}.")


def _wait_out(dispatch: Dispatch, machine: str, patience_s: float) -> None:
    """Return when the machine has heard it and does nothing any more."""
    end, printed, pause = time.monotonic() + patience_s, -1, threading.Event()
    while True:
        state = _state(dispatch, machine)
        if not state.alive:
            if dispatch.backlog() is None:
                raise GraderError(f"{_away(dispatch)}. {machine} stays drained; its runs are not known.")
            click.echo(f"{machine} is drained. Its worker is not running.")
            return
        if state.drained and state.busy == 0:
            click.echo(f"{machine} is drained and has no runs. Undo: grader drain {machine} --back")
            return
        if state.busy not in (0, printed):
            printed = state.busy
            click.echo(f"{machine}: waiting for {counted(printed, 'run')} …")
        if time.monotonic() >= end:
            raise GraderError(
                f"{machine} still has {counted(state.busy, 'run')} after {patience_s:g} s. It stays drained. "
                "Wait longer with --wait, or stop its worker: other machines take its runs."
            )
        pause.wait(LOOK_S)


def _state(dispatch: Dispatch, machine: str) -> MachineState:
    return next(state for state in dispatch.machines() if state.name == machine)


@click.command("accept-models")
@click.argument("machine", shell_complete=complete_machine)
@click.pass_obj
def accept_models(settings: Settings, machine: str) -> None:
    """Accept the weights that the models of MACHINE have now.

    A model that has other weights than before gets no work until you load the former ones or accept the new
    ones. Its worker takes work again within a minute.
    """
    settings.config.machine(machine)
    dispatch = open_dispatch(settings.running)
    try:
        models = dispatch.accept_models(machine)
    except AWAY:
        raise GraderError(f"{_away(dispatch)}. Nothing was changed.") from None
    click.echo(f"{machine}: {counted(models, 'model')} accepted with the weights they have now.")


VARIABLE = "GRADER_REDIS_PASSWORD_SERVER"
ADMIN = "GRADER_REDIS_ADMIN"


@click.group()
def redis() -> None:
    """Print the users of Redis for server and machines."""


@redis.command()
@click.option("--machine", "only", shell_complete=complete_machine, help="Only the user of this machine.")
@click.option("--sentinels", is_flag=True, help="Print the users of the sentinels instead.")
@click.option(
    "--install", is_flag=True, help="Give every Redis of a set and every sentinel its users, and print none."
)
@click.pass_obj
def acl(settings: Settings, only: str | None, sentinels: bool, install: bool) -> None:
    """Print users.acl: one user for the server and each machine.

    Each user has the least rights it needs. The server's password comes from GRADER_REDIS_PASSWORD_SERVER or
    the server's GRADER_REDIS_URL; without either, a new one is generated. Machines' passwords are derived
    from it. users.acl contains hashes only; each computer's GRADER_REDIS_URL is printed once, to standard
    error.

    With --install, an administrator of Redis and of the sentinels, USER:PASSWORD in GRADER_REDIS_ADMIN, gives
    all of them the users of this version. Machines keep their passwords, except the one of --machine.
    """
    from grading.broker import redis_acl, redis_users, signing

    config = settings.config
    if sentinels or install:
        _with_successor(config, only, install=install)
        return
    names = [config.machine(only).name] if only else [machine.name for machine in config.machines]
    password = _password(config.redis.url, must_be_known=only is not None)
    keys = signing.Keyring(password, users=True)
    users = {} if only else {signing.SERVER: password}
    users |= {signing.machine_user(name): keys.machine_password(name) for name in names}
    for line in redis_acl.lines(config, users)[1 if only else 0 :]:
        click.echo(line)
    if watched(config.redis.url) and not only:
        for line in redis_users.lines(keys):
            click.echo(line)
        for line in redis_users.settings_lines(config, keys):
            click.echo(line, err=True)
    _say_addresses(config, users, keys)
    if on_loopback(config.redis.url):
        click.echo("On the machines, replace the loopback address by the server's address.", err=True)


def _with_successor(config: Config, only: str | None, *, install: bool) -> None:
    """The users of sentinels, or all users brought to all of them."""
    from grading.broker import redis_users, signing

    if not watched(config.redis.url):
        raise ConfigError("redis.url names no sentinels; docs/how-to/administrators/redis.md has the form.")
    keys = signing.Keyring(_password(config.redis.url, must_be_known=True), users=True)
    if not install:
        for line in redis_users.sentinel_lines(keys):
            click.echo(line)
        return
    user, _, password = os.environ.get(ADMIN, "").partition(":")
    if not password or user in ("", "default"):
        raise ConfigError(
            f"Set {ADMIN} to USER:PASSWORD of an administrator of every Redis and every sentinel. It cannot "
            "be the user default, which is disabled."
        )
    renew = [config.machine(only).name] if only else []
    try:
        new = redis_users.install(config, keys, (user, password), renew)
    except redis_users.UsersNotInstalled as error:
        _say_addresses(config, error.new, keys)  # given again, the command keeps these and prints none
        raise
    click.echo("Every Redis and every sentinel has its users.")
    _say_addresses(config, new, keys)


def _say_addresses(config: Config, passwords: Mapping[str, str], keys: Keyring) -> None:
    from grading.broker import redis_acl, redis_users

    for user, password in passwords.items():
        url = redis_acl.url_of(config, user, password)
        url = redis_users.with_clients(url, keys) if watched(url) else url
        click.echo(f"{user}: GRADER_REDIS_URL={url}", err=True)


def _password(url: str, *, must_be_known: bool) -> str:
    """The server's. That of a machine must be made of the one that the server has."""
    from grading.broker import signing

    password = os.environ.get(VARIABLE)
    if password is None:
        keys = signing.keyring(url)
        if keys.users:
            return keys.password
        if must_be_known:
            raise ConfigError(
                "The password of a machine is derived from the server's. Set GRADER_REDIS_URL to the address "
                f"of its user '{signing.SERVER}', or {VARIABLE} to its password."
            )
        return secrets.token_urlsafe(32)
    if len(password) < MIN_SECRET:
        raise ConfigError(f"{VARIABLE}: use at least {MIN_SECRET} characters.")
    return password
