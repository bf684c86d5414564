"""Life for the demo: due dates, a released grade, a change by a person, a regrade request, an extension."""

from __future__ import annotations

import os
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType

import click
from sqlalchemy.orm import Session

from cli.commands.admin import store_assignment
from cli.commands.submit import client_errors
from cli.dev.embedded_redis import free_port
from cli.dev.local_stack import System
from cli.dev.platforms.moodle import Moodle
from cli.dev.platforms.server import Running, link_course
from cli.output import progress_bar
from cli.settings import Settings
from cli.tables import show, table
from grader_client import Client, Submission
from grading.assignments.loader import read_folder
from grading.domain.errors import GraderError, NotFound
from grading.domain.lateness import LateRule
from grading.domain.permissions import Actor
from grading.domain.report import Report
from grading.domain.report_changes import Change
from grading.domain.stages import STAGES, grading_stages
from grading.store import Store, tables
from grading.store.accounts import users
from grading.store.assignments import settings as assignment_settings
from grading.store.assignments import versions
from grading.store.database import now
from grading.store.grades import change_history, extensions, release
from grading.store.integrations.lti import launch, registrations
from grading.store.integrations.lti.platform import add_scores
from grading.store.integrations.lti.tables import LtiContext
from grading.store.review import edits, regrade_requests

OPEN, RELEASED = "business-analytics/python-basket", "business-analytics/sales-cleaning"
TO_SEE = ("s-1001", "s-1002", "s-1003", "s-1004")
"""Whose grade for RELEASED they can see; the others wait for a person, one of them held."""
STUDENT = "s-1003"
"""Who is signed in as `student`: one grade to look at, and one assignment still to submit."""
UNHAPPY, CHANGED, EXTENDED = "s-1004", "s-1002", "s-1005"


def name_people(session: Session) -> None:
    """`student` and `instructor` sign in as people with names; the student is one of the samples'."""
    if users.find_user(session, "local", "student") is None:
        user = _user(session, STUDENT)
        user.identities.append(tables.Identity(provider="local", subject="student"))
    if users.find_user(session, "local", "instructor") is None:
        users.create_user(session, "instructor", name="Ben Weber")
    session.flush()


def set_dates(session: Session) -> None:
    """One assignment is due tomorrow, where being late costs something, the other in a week."""
    actor = _instructor(session)
    for slug, days, late in (
        (OPEN, 1, LateRule(per_day=0.1, days=3, grace_minutes=15)),
        (RELEASED, 7, LateRule()),
    ):
        assignment = versions.find_by_name(session, slug)
        settings = assignment_settings.settings_of(assignment)
        if settings.due is None:
            due = (now(session) + timedelta(days=days)).replace(hour=21, minute=59, second=0, microsecond=0)
            changed = settings.model_copy(update={"due": due, "late": late})
            extensions.apply_settings(session, assignment, changed, actor)


def bring_to_life(store: Store, submissions: Mapping[tuple[str, str], str]) -> None:
    """What people do once submissions (by assignment and student) are graded; nothing a second time."""
    with store.write() as session:
        actor = _instructor(session)
        locked = release.lock_current_grade(session, submissions[RELEASED, UNHAPPY])
        if locked is None or locked.released_at is not None:
            return
        _give_full_points(session, submissions[RELEASED, CHANGED], actor)
        for student in TO_SEE:
            grade = release.lock_current_grade(session, submissions[RELEASED, student])
            if grade is not None:
                release.release_grade(session, grade.round_id, actor)
        unhappy = users.actor_of(session, _user(session, UNHAPPY))
        reason = "The line with the revenue runs on my computer. Could somebody look at it again?"
        regrade_requests.create_request(session, unhappy, submissions[RELEASED, UNHAPPY], "", reason)
        _extend(session, actor)


def _give_full_points(session: Session, submission_id: str, actor: Actor) -> None:
    """A person gives all points of one criterion that lost some, with a reason."""
    grade = release.lock_current_grade(session, submission_id)
    if grade is None:
        return
    lost = [one for one in Report.model_validate(grade.report).criteria if (one.points or 0) < one.max_points]
    if lost:
        reason = "The task leaves this open; your way is as good."
        wanted = Change(kind="points", target=lost[0].criterion, points=lost[0].max_points, reason=reason)
        edits.change_grade(
            session, submission_id, wanted, change_history.stamp(session, grade.round_id), actor
        )


def _extend(session: Session, actor: Actor) -> None:
    """One student has three days more for the assignment that is still open."""
    assignment = versions.find_by_name(session, OPEN)
    if assignment.due_at is not None:
        until = assignment.due_at + timedelta(days=3)
        extensions.grant_extension(
            session, assignment, [_user(session, EXTENDED).id], until, "Was ill.", actor
        )


def _instructor(session: Session) -> Actor:
    return users.actor_of(session, _user(session, "instructor"))


def _user(session: Session, name: str) -> tables.User:
    found = users.find_user(session, "local", name)
    if found is None:
        raise NotFound(f"The demo has no user “{name}”.")
    return found


HOST = "127.0.0.1"
"""Another host name than Grader's, which is localhost here: for browsers another site."""
ALLOWED = "127.0.0.1/32"
PEOPLE = {"teacher-1": "instructor", "student-1": "student"}
"""Who of the platform is whom of the demo."""


class DemoPlatform:
    """The platform while the demo runs; without one the demo goes on."""

    def __init__(self, store: Store, tool: str, course: str) -> None:
        self._running: Running | None = None
        self.url = ""
        port = free_port()
        world = Moodle(f"http://{HOST}:{port}", tool)
        world.furnish()
        try:
            _introduce(store, world, course)
            self._running = Running(world, HOST, port)
            self.url = world.base
        except (GraderError, OSError) as error:
            click.echo(f"The demo runs without a learning platform: {error}", err=True)

    def __enter__(self) -> DemoPlatform:
        (self._running or nullcontext()).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is not None:
            self._running.__exit__(kind, error, trace)


def _introduce(store: Store, world: Moodle, slug: str) -> None:
    """The platform is known, its course is the demo's, and its people are those of the demo."""
    with store.write() as session:
        course = versions.find_or_create_course(session, slug)
        listed = (
            session.query(tables.Assignment).filter_by(course_id=course.id).order_by(tables.Assignment.id)
        )
        link_course(session, world, course.id, {one.id: one.title for one in listed})
        platform = registrations.find_platform(session, world.base, world.client_id)
        assert platform is not None
        context = session.query(LtiContext).filter_by(platform_id=platform.id).one()
        for key, name in PEOPLE.items():
            subject, user = world.people[key].id, users.find_user(session, "local", name)
            if user is not None and users.find_user(session, platform.provider, subject) is None:
                user.identities.append(tables.Identity(provider=platform.provider, subject=subject))
                session.flush()
            known = launch.find_or_create_user(session, platform, subject, "", "")
            launch.enrol_member(session, context, known, subject, name)
        for link in world.links.values():
            assignment = int(link.custom["grader_assignment"])
            launch.add_link(session, context.id, link.id, assignment, "demo")
        student = users.find_user(session, platform.provider, world.people["student-1"].id)
        if student is not None:
            mine = session.query(tables.Submission.id).filter_by(student_id=student.id)
            add_scores(session, [one.id for one in mine])


SAMPLES = Path(__file__).resolve().parents[2] / "samples"
COURSE = "business-analytics"
PATIENCE_S = 180.0
WHO_SEES = ("instructor", "student")
ADMINISTRATOR = "admin"
NOT_RUN = "not_run"


@dataclass(frozen=True)
class Sample:
    """One submission of samples/submissions/index.toml."""

    file: Path
    assignment: str
    student: str
    name: str
    expect: str


@click.command()
@click.option("--once", is_flag=True, help="Stop after grading; exit status 0 if all samples were graded.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the web app; server.port or a free one.")
@click.option(
    "--var",
    "folder",
    type=click.Path(path_type=Path),
    default=".demo",
    show_default=True,
    help="Data folder.",
)
@click.pass_obj
def demo(settings: Settings, once: bool, port: int | None, folder: Path) -> None:
    """Run the whole system with sample submissions and no model."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ["GRADER_DATABASE_URL"] = f"sqlite:///{(folder / 'grader.db').resolve()}"
    os.environ.pop("GRADER_REDIS_URL", None)
    chosen = port or _port(settings.config.server.port)
    os.environ["GRADER_PUBLIC_URL"] = f"http://localhost:{chosen}"
    os.environ["GRADER_OUTSIDE_ALLOWED"] = ALLOWED
    settings = Settings(settings.path)  # read with these addresses
    click.echo(
        "Starting Redis, the web app, the store worker, the sandbox worker, the sweeper and four machines …"
    )
    with System(settings, engine="rules", port=chosen, folder=folder, own_redis=True) as system:
        if system.key_notice:
            click.echo(system.key_notice)
        people = furnish(settings.config.database.url)
        with progress_bar("Starting") as report:
            system.until_ready(PATIENCE_S, lambda done, total: report(done, total, "Starting"))
        views = _submit(Client(system.url, people.token), samples())
        store = Store(settings.config.database.url)
        bring_to_life(store, {(one.assignment, one.student): view["id"] for one, view in views})
        _show(views)
        _say_what_was_not_run(views)
        graded = all(view["status"] == "graded" for _, view in views)
        if once:
            store.close()
            if not graded:
                raise GraderError(f"Some samples were not graded. See the logs in {folder}.")
            click.echo(f"All samples were graded. Logs and data are in {system.folder}.")
            return
        with DemoPlatform(store, f"http://localhost:{chosen}", COURSE) as platform:
            store.close()
            _say_where(system, people, platform.url)
            click.echo("Press Ctrl-C to stop.")
            system.wait()


@dataclass(frozen=True)
class People:
    """Who can sign in to the demo, with passwords made at this start."""

    passwords: dict[str, str]
    token: str


def samples() -> list[Sample]:
    """The sample submissions in the order they are submitted."""
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
        name_people(session)
        for name in WHO_SEES:
            user = users.find_user(session, "local", name) or users.create_user(session, name)
            users.enrol(session, user.id, course.id, name)
        administrator = users.find_user(session, "local", ADMINISTRATOR)
        assert administrator is not None
        passwords = {name: _new_password(session, name) for name in (*WHO_SEES, ADMINISTRATOR)}
        set_dates(session)
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


def _submit(client: Client, all_samples: Sequence[Sample]) -> list[tuple[Sample, Submission]]:
    """Submit everything over HTTP, then wait for each."""
    click.echo(f"Submitting {len(all_samples)} samples over HTTP …")
    with client_errors():
        accepted = [
            (sample, client.submit([sample.file], sample.assignment, sample.student)["id"])
            for sample in all_samples
        ]
        with progress_bar("Grading") as report:
            views = []
            for done, (sample, identifier) in enumerate(accepted):
                report(done, len(accepted), f"Grading {sample.file.name}")
                views.append((sample, client.wait(identifier, PATIENCE_S)))
        return views


def _show(views: Sequence[tuple[Sample, Submission]]) -> None:
    """A table for each assignment, narrow enough for 80 columns."""
    stages = grading_stages(STAGES)
    for assignment in sorted({sample.assignment for sample, _ in views}):
        rows = table(
            "submission",
            "status",
            "score",
            *(f"{stage} by" for stage in stages),
            "flags",
            title=assignment,
            gap=1,
        )
        mine = [view for view in views if view[0].assignment == assignment]
        for sample, view in sorted(mine, key=lambda v: -(v[1].get("score") or 0.0)):
            score = "–" if view["score"] is None else f"{view['score']:.1f} / {view['max_score']:g}"
            flags = ", ".join(sorted({flag["code"] for flag in view["flags"]}))
            machines = [view["stages"].get(stage, {}).get("machine") or "–" for stage in stages]
            rows.add_row(sample.file.name, view["status"], score, *machines, flags)
        show(rows)
        click.echo()


def _say_what_was_not_run(views: Sequence[tuple[Sample, Submission]]) -> None:
    not_run = [view for _, view in views if any(flag["code"] == NOT_RUN for flag in view["flags"])]
    if not_run:
        click.echo(
            f"{len(not_run)} of {len(views)} submissions were graded without running them: see `grader "
            "doctor`, docs/explanation/sandbox.md and docs/how-to/administrators/r.md."
        )
        click.echo()


def _say_where(system: System, people: People, platform: str) -> None:
    click.echo(f"Open {system.url} and sign in as")
    for name, password in people.passwords.items():
        click.echo(f"  {name:<11} {password}")
    if platform:
        click.echo(f"A learning platform for tests, with Grader in a frame: {platform}")
    click.echo(f"Logs and data are in {system.folder}.")


def _port(wanted: int) -> int:
    from cli.dev.local_stack import listens

    return free_port() if listens("127.0.0.1", wanted) else wanted
