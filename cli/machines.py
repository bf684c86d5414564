"""`grader machines` and `grader doctor`: health and load."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table
from sqlalchemy.exc import SQLAlchemyError

from cli.settings import Settings
from grading.dispatch import AWAY, open_dispatch
from grading.errors import GraderError
from grading.store import Store, migrate


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_obj
def machines(settings: Settings, as_json: bool) -> None:
    """Each machine: alive, busy, stages and models."""
    dispatch = open_dispatch(settings.config)
    states, backlog = dispatch.machines(), dispatch.backlog()
    if backlog is None:
        raise GraderError("Redis does not answer, so nothing is known of the machines.")
    if as_json:
        rows = [{**vars(s), "stages": {k: dict(v) for k, v in s.stages.items()}} for s in states]
        click.echo(json.dumps({"machines": rows, "queues": backlog}, indent=2))
        return
    table = Table("machine", "role", "alive", "busy", "slots", "stages")
    for state in states:
        stages = "\n".join(f"{name}: {s['model']} ({s['engine']})" for name, s in state.stages.items())
        alive = "yes" if state.alive else "no"
        table.add_row(state.name, state.role, alive, str(state.busy), str(state.slots), stages)
    Console().print(table)
    click.echo("queues: " + ", ".join(f"{name} {length}" for name, length in backlog.items()))


@click.command()
@click.pass_obj
def doctor(settings: Settings) -> None:
    """Check configuration, Redis, database and machines; exit 1 if something is wrong."""
    problems = [*_redis_problems(settings), *_database_problems(settings), *_machine_problems(settings)]
    for problem in problems:
        click.echo(f"✗ {problem}")
    if problems:
        raise GraderError(f"{len(problems)} problem(s) found.")
    click.echo("✓ configuration, Redis, database and machines are in order")


def _redis_problems(settings: Settings) -> list[str]:
    try:
        persistent = open_dispatch(settings.config).registry.redis.config_get("appendonly")
    except AWAY as error:
        return [f"Redis does not answer ({error}); start it or set GRADER_REDIS_URL."]
    if persistent.get("appendonly") != "yes":
        return ["Redis does not persist (appendonly no); work in flight is redone after it restarts."]
    return []


def _database_problems(settings: Settings) -> list[str]:
    store = Store(settings.config.database.url)
    try:
        at = migrate.current(store)
    except SQLAlchemyError as error:
        return [f"The database does not answer ({type(error).__name__}); check GRADER_DATABASE_URL."]
    finally:
        store.close()
    if at != migrate.newest():
        return [f"The database is at revision {at}, needs {migrate.newest()}; run `grader db upgrade`."]
    return []


def _machine_problems(settings: Settings) -> list[str]:
    return [
        f"Machine {state.name} does not beat; run `grader worker {state.name}` there."
        for state in open_dispatch(settings.config).machines()
        if not state.alive
    ]
