"""`grader lti`: learning platforms by LTI 1.3, from the command line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from cli.commands.admin import writing
from cli.doctor.finding import Finding, Installation
from cli.output import counted
from cli.settings import Settings
from grading.domain.errors import GraderError
from grading.integrations.lti.keys import new_key
from grading.store import Store, schema
from grading.store.assignments import versions
from grading.store.integrations.lti import launch, registrations
from grading.store.integrations.lti.registrations import NewPlatform
from workers.server.delivery.lti import Passback

BY = "cli"


@click.group()
def lti() -> None:
    """Connect learning platforms by LTI 1.3."""


@lti.command("add")
@click.option("--name", default="", help="Name shown in Grader.")
@click.option("--issuer", required=True, help="Issuer, also called platform ID.")
@click.option("--client-id", required=True, help="Client ID that the platform gave Grader.")
@click.option("--authorize-url", required=True, help="OIDC authorisation URL.")
@click.option("--token-url", required=True, help="Access token URL.")
@click.option("--jwks-url", required=True, help="URL of the platform's public keys (JWKS).")
@click.option("--audience", default="", help="Audience of token requests; --token-url by default.")
@click.option("--origin", "origins", multiple=True, help="Another origin of its pages; can be repeated.")
@click.option("--deployment", "deployments", multiple=True, help="Deployment ID; can be repeated.")
@click.pass_obj
def add(settings: Settings, /, origins: tuple[str, ...], deployments: tuple[str, ...], **fields: str) -> None:
    """Register a platform manually."""
    with writing(settings) as session:
        new = NewPlatform(**fields, origins=origins, deployments=deployments)
        number = registrations.register_platform(session, new, BY)
    click.echo(f"Registered platform {number}.")


@lti.command("list")
@click.pass_obj
def listing(settings: Settings) -> None:
    """List platforms with their deployments and courses."""
    with _store(settings) as store, store.read() as session:
        for one in registrations.list_platforms(session):
            state = "" if one.enabled else " (off)"
            click.echo(f"{one.platform.id}: {one.platform.name}{state}, {one.platform.issuer}")
            for deployment in one.deployments:
                click.echo(f"  deployment {deployment.name}{'' if deployment.accepted else ': not accepted'}")
            for course in one.courses:
                belongs = f"linked to course {course.course_id}" if course.course_id else "not linked"
                click.echo(f"  course {course.id}, {course.title or course.context}: {belongs}")


@lti.command("change")
@click.argument("platform", type=int)
@click.option("--name", help="Name shown in Grader.")
@click.option("--client-id", help="Client ID that the platform gave Grader.")
@click.option("--authorize-url", help="OIDC authorisation URL.")
@click.option("--token-url", help="Access token URL.")
@click.option("--jwks-url", help="URL of the platform's public keys (JWKS).")
@click.option("--audience", help="Audience of token requests.")
@click.option("--origin", "origins", multiple=True, help="All other origins of its pages; can be repeated.")
@click.pass_obj
def change(settings: Settings, /, platform: int, origins: tuple[str, ...], **fields: str | None) -> None:
    """Change the registration of PLATFORM.

    Options that are not given keep their values. The issuer cannot be changed.
    """
    with writing(settings) as session:
        was = registrations.load_registration(session, platform)
        named: dict[str, Any] = {
            name: getattr(was, name) if value is None else value for name, value in fields.items()
        }
        new = NewPlatform(issuer=was.issuer, origins=origins or was.origins, **named)
        changed = registrations.change_platform(session, platform, new, BY)
    click.echo(f"Changed: {', '.join(changed)}." if changed else "Nothing changed.")


@lti.command("remove")
@click.argument("platform", type=int)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def remove(settings: Settings, platform: int, yes: bool) -> None:
    """Remove PLATFORM.

    Accounts, submissions and grades stay. Launches, links and the transfer of scores end.
    """
    with _store(settings) as store:
        with store.read() as session:
            one = registrations.load_removal_effects(session, platform)
        click.echo(
            f"{one.name}: launches, {one.courses} linked courses, {one.links} links and the transfer of "
            f"scores of {one.people} people end. {one.waiting} queued scores are not sent. Grades stay."
        )
        if not yes:
            click.confirm(f"Remove {one.name}?", abort=True)
        with store.write() as session:
            registrations.remove_platform(session, platform, BY)
    click.echo(f"Removed {one.name}.")


@lti.command("accept")
@click.argument("platform", type=int)
@click.argument("deployment")
@click.pass_obj
def accept(settings: Settings, platform: int, deployment: str) -> None:
    """Accept launches from DEPLOYMENT of PLATFORM."""
    with writing(settings) as session:
        registrations.load_platform(session, platform)
        registrations.accept_deployment(session, platform, deployment, BY)
    click.echo(f"Accepted deployment {deployment}.")


@lti.command("link")
@click.argument("context", type=int)
@click.argument("course")
@click.pass_obj
def link(settings: Settings, context: int, course: str) -> None:
    """Link the platform's course CONTEXT to COURSE.

    CONTEXT is a number that `grader lti list` shows.
    """
    with writing(settings) as session:
        launch.link_course(session, context, versions.find_or_create_course(session, course).id, BY)
    click.echo(f"Linked course {context} of the platform to {course}.")


@lti.command("invite")
@click.pass_obj
def invite(settings: Settings) -> None:
    """Create a registration link, valid once for two days.

    Paste it into the platform, which then registers itself.
    """
    with writing(settings) as session:
        secret = registrations.make_ticket(session, BY)
    click.echo(f"{settings.config.server.public_url.rstrip('/')}/lti/register/{secret}")


@lti.command("rotate")
@click.pass_obj
def rotate(settings: Settings) -> None:
    """Create a new signing key.

    The old key stays published for a week.
    """
    made = new_key()
    with writing(settings) as session:
        registrations.rotate_key(session, made, BY)
    click.echo(f"Grader signs with the key {made.kid} now.")


@lti.command("roster")
@click.argument("context", type=int)
@click.pass_obj
def update_roster(settings: Settings, context: int) -> None:
    """Update the roster of the platform's course CONTEXT.

    CONTEXT is a number that `grader lti list` shows.
    """
    with _store(settings) as store:
        count, gone = launch.update_roster(store, _passback(settings, store).talk, context, BY)
    click.echo(f"The roster has {count} people. {gone} others stay enrolled here.")


@lti.command("compare")
@click.pass_context
def compare(context: click.Context) -> None:
    """Compare the scores on all platforms with Grader's.

    Changes nothing. Exits with status 1 if scores differ.
    """
    with _store(context.obj) as store:
        count = _passback(context.obj, store).compare()
    click.echo(f"{counted(count, 'score')} differ." if count else "All scores match.")
    if count:
        raise GraderError("The page “Learning platform” of each course lists them and sends them again.")


@lti.command("platform")
@click.option("--host", default="localhost", show_default=True, help="Loopback name, other than Grader's.")
@click.option("--port", type=click.IntRange(1, 65535), default=8090, show_default=True, help="Port.")
@click.option("--kind", type=click.Choice(["moodle", "canvas"]), default="moodle", show_default=True,
              help="Platform to imitate.")  # fmt: skip
@click.pass_obj
def platform(settings: Settings, host: str, port: int, kind: str) -> None:
    """Run a test platform for LTI on this computer.

    It imitates Moodle or Canvas and is registered in Grader automatically.
    """
    from cli.dev.platforms.server import KINDS, Running, join

    if host not in ("localhost", "127.0.0.1", "::1") and not host.endswith(".localhost"):
        raise GraderError("The test platform checks no passwords. Use a loopback name for --host.")
    world = KINDS[kind](f"http://{host}:{port}", settings.config.server.public_url.rstrip("/"))
    world.furnish()
    with writing(settings) as session:
        join(session, world)
    with Running(world, host, port):
        click.echo(f"The test platform runs at {world.base}. Press Ctrl-C to stop it.")
        _until_ended()


def _until_ended() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo("Stopped.")


@contextmanager
def _store(settings: Settings) -> Iterator[Store]:
    store = Store(settings.config.database.url)
    try:
        schema.require_usable(store)
        yield store
    finally:
        store.close()


def _passback(settings: Settings, store: Store) -> Passback:
    return Passback(settings.config.server, store)


def diagnose(_installation: Installation) -> Iterator[Finding]:
    """For `grader doctor`: nothing; platforms are known by the database only, and their page shows errors."""
    return iter(())
