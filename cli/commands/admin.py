"""Administration of what the database holds: assignments, tokens, users, its schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import click
from sqlalchemy.orm import Session

from cli.settings import Settings
from grading.assignments.loader import Assignment, read_folder
from grading.domain.errors import AssignmentError, NotFound, SandboxUnavailable
from grading.domain.stages import grading_stages
from grading.store import Store, open_store, schema, tables
from grading.store.accounts import credentials, second_factor, users
from grading.store.assignments import versions
from grading.store.audit import write_audit
from grading.store.grades import extensions
from workers.sandbox.backends import open_backend
from workers.sandbox.plan_runner import Runner, Shelf
from workers.sandbox.reference_scores import Score, contents, decided, require_proven, scores
from workers.sandbox.request_runner import Executor
from workers.sandbox.runtimes import find_runtime


@contextmanager
def writing(settings: Settings) -> Iterator[Session]:
    """A session on the configured database, which must be at the newest revision."""
    store = Store(settings.config.database.url)
    try:
        schema.require_usable(store)
        with store.write() as session:
            yield session
    finally:
        store.close()


@click.group()
def db() -> None:
    """Create and upgrade the tables of the database."""


@db.command("upgrade")
@click.pass_obj
def db_upgrade(settings: Settings) -> None:
    """Create the tables or upgrade them to the newest revision."""
    schema.upgrade(settings.config.database.url)
    click.echo(f"The database is at revision {schema.newest_revision()}.")


@db.command("current")
@click.pass_obj
def db_current(settings: Settings) -> None:
    """Show the revisions of the database and of this code.

    Exits with status 1 if this code does not work with the database.
    """
    with closing(Store(settings.config.database.url)) as store:
        at = schema.reached_revision(store)
    click.echo(f"database: {at or 'no tables'}")
    click.echo(f"this code: {schema.newest_revision()}")
    if schema.fit_of(at) not in ("same", "newer"):
        raise schema.StoreOutdated(schema.sentence(at))
    click.echo(schema.sentence(at))


@click.group()
def assignment() -> None:
    """Import assignments."""


@assignment.command("import")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--course", help="Course, if assignment.toml has none.")
@click.option("--force", is_flag=True, help="Import a translated rubric even if its solution fails.")
@click.pass_obj
def import_assignment(settings: Settings, folder: Path, course: str | None, force: bool) -> None:
    """Import FOLDER as the current version of an assignment.

    The solution and the starter are graded by the rubric, and their points are printed. A rubric translated
    from another autograder is refused if its solution gets less than 95 % or its starter more than 5 %.
    """
    from cli.commands.admin import tried

    read = read_folder(folder)
    _refuse_unknown_stages(settings, read)
    for sentence in read.notes:
        click.echo(f"⚠ {sentence}")
    tried(settings, read, refuse=read.translated and not force)
    with writing(settings) as session:
        name, number, added = store_assignment(session, read, course, release=settings.config.server.release)
    click.echo(f"{name}: version {number} {'stored' if added else 'is unchanged'}")


def _refuse_unknown_stages(settings: Settings, read: Assignment) -> None:
    """No submission for it could ever be graded."""
    stages = grading_stages(settings.config.stages)
    for criterion in read.rubric.criteria:
        if criterion.stage not in stages:
            raise AssignmentError(
                f"criterion '{criterion.id}': stage '{criterion.stage}' is not in config.toml; it has "
                f"{', '.join(stages)}."
            )


def store_assignment(
    session: Session, read: Assignment, course: str | None = None, *, release: str = "after_review"
) -> tuple[str, int, bool]:
    """Store what a folder holds; returns its name, version number and whether that is new.

    `course` and `release` count where the folder names none.
    """
    course_slug = read.course or course
    if not course_slug:
        raise AssignmentError("assignment.toml: course: this key is missing. Add it or use --course.")
    row, version, added = versions.import_version(
        session, course_slug, versions.version_of_folder(read, release)
    )
    extensions.rescore_lateness(session, row, "cli")
    if added:
        write_audit(session, "cli", "assignment.import", f"assignment:{row.id}", {"version": version.number})
    return f"{course_slug}/{row.slug}", version.number, added


@click.group()
def token() -> None:
    """Create API tokens."""


@token.command("create")
@click.option("--user", "sign_in_name", default="admin", show_default=True, help="User the token belongs to.")
@click.option("--scope", "scopes", multiple=True, default=("submit", "read"), show_default=True,
              help="Scope: submit, read, grade, manage, chat or admin; can be repeated.")  # fmt: skip
@click.option("--days", default=90, show_default=True, help="Days until it expires.")
@click.option("--name", default="made by grader token create", help="Name shown in lists.")
@click.option("--daily-tokens", type=click.IntRange(0, users.MOST_DAILY_TOKENS),
              help="Tokens of models a day that it may use by the gateway; 0: any number. Default: "
              "daily_tokens in [gateway].")  # fmt: skip
@click.pass_obj
def token_create(
    settings: Settings,
    sign_in_name: str,
    scopes: tuple[str, ...],
    days: int,
    name: str,
    daily_tokens: int | None,
) -> None:
    """Create a token and print it, once only."""
    with writing(settings) as session:
        user = users.find_user(session, "local", sign_in_name)
        if user is None:
            raise NotFound(f"There is no user '{sign_in_name}'. Create one with `grader user add`.")
        made = users.create_token(session, user.id, name, scopes, timedelta(days=days), daily_tokens)
    click.echo(made.secret)


@click.group()
def user() -> None:
    """Create accounts, set passwords, reset second factors."""


@user.command("add")
@click.argument("sign_in_name")
@click.option("--name", default="", help="Full name.")
@click.option("--email", default="", help="Email address; also removed from submissions.")
@click.option("--role", type=click.Choice(["student", "grader", "instructor"]), help="Role in --course.")
@click.option("--course", help="Course to enrol in.")
@click.option("--administrator", is_flag=True, help="Give all permissions in all courses.")
@click.password_option(help="Asked for when not given.")
@click.pass_obj
def user_add(
    settings: Settings,
    sign_in_name: str,
    name: str,
    email: str,
    role: str | None,
    course: str | None,
    administrator: bool,
    password: str,
) -> None:
    """Create the account SIGN_IN_NAME."""
    if bool(role) != bool(course):
        raise click.UsageError("--role and --course go together.")
    with writing(settings) as session:
        made = users.create_user(
            session, sign_in_name, password, name=name, email=email, administrator=administrator
        )
        if role and course:
            users.enrol(session, made.id, versions.find_or_create_course(session, course).id, role)
        write_audit(session, "cli", "user.create", f"user:{made.id}", {"role": role, "course": course})
    click.echo(f"Created account '{sign_in_name}'.")


@user.command("password")
@click.argument("sign_in_name")
@click.password_option(help="Asked for when not given.")
@click.pass_obj
def user_password(settings: Settings, sign_in_name: str, password: str) -> None:
    """Set the password of SIGN_IN_NAME.

    Sessions and API tokens of the account end, and sign-ins of providers that were linked with it open it
    only after they were linked again. Accounts of students created by uploads or the API get a
    password this way, too.
    """
    with writing(settings) as session:
        found = _named(session, sign_in_name)
        users.set_password(session, found, password)
        credentials.end_what_was_added(session, found.id, "cli")
        write_audit(session, "cli", "user.password", f"user:{found.id}", {})
    click.echo(f"Set the password of '{sign_in_name}'.")


@user.command("reset-second-factor")
@click.argument("sign_in_name")
@click.pass_obj
def user_reset_second_factor(settings: Settings, sign_in_name: str) -> None:
    """Remove the second factor of SIGN_IN_NAME.

    First make sure who asks. The account signs in with its password alone then, until a second factor is set
    up again. Its sessions end. A break-glass account becomes an ordinary account.
    """
    with writing(settings) as session:
        found = _named(session, sign_in_name)
        was_break_glass = found.break_glass
        existed = second_factor.reset(session, found.id, "cli")
    click.echo(f"'{sign_in_name}' has no second factor {'any more' if existed else '(it had none)'}.")
    if was_break_glass:
        click.echo("It is no break-glass account any more, as these need a second factor.")


@user.command("break-glass")
@click.argument("sign_in_name")
@click.option("--off", is_flag=True, help="Make it an ordinary account again.")
@click.pass_obj
def user_break_glass(settings: Settings, sign_in_name: str, off: bool) -> None:
    """Let SIGN_IN_NAME sign in although passwords are off.

    The account needs a second factor: sign in and set one up on the page My account, before you turn local
    accounts off.
    """
    with writing(settings) as session:
        second_factor.set_break_glass(session, _named(session, sign_in_name), not off, "cli")
    click.echo(f"'{sign_in_name}' is {'an ordinary' if off else 'a break-glass'} account.")


def _named(session: Session, sign_in_name: str) -> tables.User:
    found = users.find_user(session, "local", sign_in_name)
    if found is None:
        raise NotFound(f"There is no user '{sign_in_name}'. Create one with `grader user add`.")
    return found


def tried(settings: Settings, read: Assignment, *, refuse: bool) -> None:
    """Run solution and starter through the rubric and print what they earn. Raises RubricNotProven."""
    if not (read.solution or read.starter):
        click.echo("The rubric is not tested: the folder has no solution and no starter.")
        return
    config = settings.config.sandbox
    with closing(open_store(settings.config)) as store, Shelf() as shelf:
        schema.require_usable(store)
        sandbox = open_backend(config.backend, engine=config.engine, image=config.image)
        executor = Executor(sandbox, lambda language: find_runtime(language, config))
        if sandbox.problem():
            click.echo(f"⚠ Checks that run code are not counted: {sandbox.problem()}")
        try:
            found = scores(read, Runner(store, executor, shelf, contents(read)), config.limits)
        except SandboxUnavailable as error:
            click.echo(f"⚠ Solution and starter were not run: {error.message}")
            return
    for line in table(read, found):
        click.echo(line)
    if refuse:
        require_proven(found)


def table(read: Assignment, found: Sequence[Score]) -> list[str]:
    """Points by criterion, the whole, and what no check decides."""
    by_checks, open_ones = decided(read, found)
    wide = max((len(one.id) for one in by_checks), default=0)
    heads = [one.work for one in found]
    lines = [f"{'':{wide}}  " + "  ".join(f"{head:>{_width(head)}}" for head in heads)]
    for criterion in by_checks:
        cells = [_cell(criterion.points * one.shares.get(criterion.id, 0), criterion.points) for one in found]
        lines.append(_line(criterion.id, wide, heads, cells))
    totals = [f"{_cell(one.points, one.most)} ({one.share:.0%})" for one in found]
    lines = [*lines, _line("total", wide, heads, totals)] if by_checks else ["No check grades a criterion."]
    if open_ones:
        names = ", ".join(f"{one.id} ({one.points:g})" for one in open_ones)
        lines.append(f"Not counted, graded by a model or a person: {names}")
    return lines + _losses(found)


def _losses(found: Sequence[Score]) -> list[str]:
    """Where the solution itself loses points."""
    return [f"⚠ solution: {line}" for one in found if one.work == "solution" for line in one.lost]


def _line(name: str, wide: int, heads: Sequence[str], cells: Sequence[str]) -> str:
    padded = (f"{cell:>{_width(head)}}" for head, cell in zip(heads, cells, strict=True))
    return f"{name:{wide}}  " + "  ".join(padded)


def _width(head: str) -> int:
    return max(len(head), 20)


def _cell(points: float, most: float) -> str:
    return f"{round(points, 2):g} / {most:g}"
