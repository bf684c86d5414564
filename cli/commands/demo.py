"""`grader demo`: the whole system with the samples, on a fresh machine, without a model."""

from __future__ import annotations

import os
import secrets
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from sqlalchemy.orm import Session

from cli.commands import demo_class, demo_platform
from cli.commands.admin import store_assignment
from cli.commands.submit import Client
from cli.dev.embedded_redis import free_port
from cli.dev.local_stack import System
from cli.settings import Settings
from grading.assignments.loader import read_folder
from grading.domain.errors import GraderError
from grading.domain.stages import STAGES
from grading.store import Store
from grading.store.accounts import users
from grading.store.assignments import versions

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
COURSE = "business-analytics"
PATIENCE_S = 180.0
WHO_SEES = ("instructor", "student")
ADMINISTRATOR = "admin"
NOT_RUN = "not_run"


@dataclass(frozen=True)
class Sample:
    """One hand-in of samples/submissions/index.toml."""

    file: Path
    assignment: str
    student: str
    name: str
    expect: str


@click.command()
@click.option("--once", is_flag=True, help="Stop after grading; exit 0 only if all were graded.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the web app (8080, or a free one).")
@click.option(
    "--var", "folder", type=click.Path(path_type=Path), default=".demo", show_default=True, help="Its data."
)
@click.pass_obj
def demo(settings: Settings, once: bool, port: int | None, folder: Path) -> None:
    """Start everything with the rules engine, hand in the samples, show what each scored."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ["GRADER_DATABASE_URL"] = f"sqlite:///{(folder / 'grader.db').resolve()}"
    os.environ.pop("GRADER_REDIS_URL", None)
    chosen = port or _port(settings.config.server.port)
    os.environ["GRADER_PUBLIC_URL"] = f"http://localhost:{chosen}"
    os.environ["GRADER_OUTSIDE_ALLOWED"] = demo_platform.ALLOWED
    settings = Settings(settings.path)  # read with these addresses
    click.echo("Starting Redis, the web app, the store worker, the pool, the sweeper and four machines …")
    with System(settings, engine="rules", port=chosen, folder=folder, own_redis=True) as system:
        people = furnish(settings.config.database.url)
        system.until_ready(PATIENCE_S)
        views = _hand_in(Client(system.url, people.token), samples())
        store = Store(settings.config.database.url)
        demo_class.bring_to_life(store, {(one.assignment, one.student): view["id"] for one, view in views})
        _show(views)
        _say_what_was_not_run(views)
        graded = all(view["status"] == "graded" for _, view in views)
        if once:
            store.close()
            if not graded:
                raise GraderError("Not every sample was graded; see the logs in " + str(folder))
            click.echo(f"All were graded. Logs and data are in {system.folder}.")
            return
        with demo_platform.DemoPlatform(store, f"http://localhost:{chosen}", COURSE) as platform:
            store.close()
            _say_where(system, people, platform.url)
            click.echo("Ctrl-C ends it.")
            system.wait()


@dataclass(frozen=True)
class People:
    """Who can sign in to the demo, with passwords made at this start."""

    passwords: dict[str, str]
    token: str


def samples() -> list[Sample]:
    """The sample hand-ins in the order they are handed in."""
    folder = SAMPLES / "submissions"
    index = tomllib.loads((folder / "index.toml").read_text(encoding="utf-8"))
    return [
        Sample(folder / row["file"], row["assignment"], row["student"], row["name"], row["expect"])
        for row in index["submissions"]
    ]


def furnish(database_url: str) -> People:
    """The sample assignments, students with names, and people to sign in as."""
    store = Store(database_url)
    with store.write() as session:
        for folder in sorted((SAMPLES / "assignments").iterdir()):
            if (folder / "assignment.toml").exists():
                store_assignment(session, read_folder(folder))
        course = versions.find_or_create_course(session, COURSE)
        for sample in samples():
            users.find_or_create_student(session, "local", sample.student, sample.name, "", course.id)
        demo_class.name_people(session)
        for name in WHO_SEES:
            user = users.find_user(session, "local", name) or users.create_user(session, name)
            users.enrol(session, user.id, course.id, name)
        administrator = users.find_user(session, "local", ADMINISTRATOR)
        assert administrator is not None
        passwords = {name: _new_password(session, name) for name in (*WHO_SEES, ADMINISTRATOR)}
        demo_class.set_dates(session)
        token = users.create_token(
            session, administrator.id, "demo", ["submit", "read"], timedelta(days=1)
        ).secret
    store.close()
    return People(passwords, token)


def _new_password(session: Session, name: str) -> str:
    """At every start: nobody remembers what an earlier one said."""
    user, password = users.find_user(session, "local", name), secrets.token_urlsafe(8)
    assert user is not None
    users.set_password(session, user, password)
    return password


def _hand_in(client: Client, all_samples: Sequence[Sample]) -> list[tuple[Sample, dict[str, Any]]]:
    """Hand everything in over HTTP, then wait for each."""
    click.echo(f"Handing in {len(all_samples)} samples over HTTP …")
    accepted = [
        (sample, client.submit([sample.file], sample.assignment, sample.student)["id"])
        for sample in all_samples
    ]
    return [(sample, client.wait(identifier, PATIENCE_S)) for sample, identifier in accepted]


def _show(views: Sequence[tuple[Sample, dict[str, Any]]]) -> None:
    """A table for each assignment, narrow enough for 80 columns."""
    for assignment in sorted({sample.assignment for sample, _ in views}):
        table = Table(box=None, padding=(0, 1, 0, 0), title=assignment, title_justify="left")
        for heading in ("hand-in", "status", "score", *(f"{stage} by" for stage in STAGES), "flags"):
            table.add_column(heading, no_wrap=heading != "flags")
        mine = [view for view in views if view[0].assignment == assignment]
        for sample, view in sorted(mine, key=lambda v: -(v[1].get("score") or 0.0)):
            score = "–" if view["score"] is None else f"{view['score']:.1f} / {view['max_score']:g}"
            flags = ", ".join(sorted({flag["code"] for flag in view["flags"]}))
            machines = [view["stages"][stage]["machine"] or "–" for stage in STAGES]
            table.add_row(sample.file.name, view["status"], score, *machines, flags)
        Console().print(table)
        click.echo()


def _say_what_was_not_run(views: Sequence[tuple[Sample, dict[str, Any]]]) -> None:
    not_run = [view for _, view in views if any(flag["code"] == NOT_RUN for flag in view["flags"])]
    if not_run:
        click.echo(
            f"{len(not_run)} of {len(views)} were graded without being run: `grader doctor` says what is "
            "missing here, docs/sandbox.md and docs/r.md have more."
        )
        click.echo()


def _say_where(system: System, people: People, platform: str) -> None:
    click.echo(f"Look at {system.url} and sign in as")
    for name, password in people.passwords.items():
        click.echo(f"  {name:<11} {password}")
    if platform:
        click.echo(f"Or come by a learning platform: {platform} shows Grader in a frame, and its grades.")
    click.echo(f"Logs and data are in {system.folder}.")


def _port(wanted: int) -> int:
    from cli.dev.local_stack import listens

    return free_port() if listens("127.0.0.1", wanted) else wanted
