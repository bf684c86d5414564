"""`grader lti`: learning platforms by LTI 1.3, from the command line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from cli.commands.admin import writing
from cli.doctor.finding import Finding, Installation
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
    """Learning platforms by LTI 1.3; docs/how-to/administrators/lti.md says how to connect one."""


@lti.command("add")
@click.option("--name", default="", help="What it is called here.")
@click.option("--issuer", required=True, help="Issuer, also called platform id.")
@click.option("--client-id", required=True, help="Client id the platform gave this tool.")
@click.option("--authorize-url", required=True, help="Address of OIDC authorisation.")
@click.option("--token-url", required=True, help="Address of access tokens.")
@click.option("--jwks-url", required=True, help="Address of the platform's public keys.")
@click.option("--audience", default="", help="Audience of token requests, where it is not the address.")
@click.option("--origin", "origins", multiple=True, help="Another address of its pages; several times.")
@click.option("--deployment", "deployments", multiple=True, help="An installation; several times.")
@click.pass_obj
def add(settings: Settings, /, origins: tuple[str, ...], deployments: tuple[str, ...], **fields: str) -> None:
    """Register a platform by hand."""
    with writing(settings) as session:
        new = NewPlatform(**fields, origins=origins, deployments=deployments)
        number = registrations.register_platform(session, new, BY)
    click.echo(f"Platform {number} is registered.")


@lti.command("list")
@click.pass_obj
def listing(settings: Settings) -> None:
    """Platforms with their installations and courses."""
    with _store(settings) as store, store.read() as session:
        for one in registrations.list_platforms(session):
            state = "" if one.enabled else " (off)"
            click.echo(f"{one.platform.id}: {one.platform.name}{state}, {one.platform.issuer}")
            for deployment in one.deployments:
                click.echo(
                    f"  installation {deployment.name}{'' if deployment.accepted else ': not accepted'}"
                )
            for course in one.courses:
                belongs = f"belongs to course {course.course_id}" if course.course_id else "not linked"
                click.echo(f"  course {course.id}, {course.title or course.context}: {belongs}")


@lti.command("change")
@click.argument("platform", type=int)
@click.option("--name")
@click.option("--client-id")
@click.option("--authorize-url")
@click.option("--token-url")
@click.option("--jwks-url")
@click.option("--audience")
@click.option("--origin", "origins", multiple=True, help="All other addresses of its pages; several times.")
@click.pass_obj
def change(settings: Settings, /, platform: int, origins: tuple[str, ...], **fields: str | None) -> None:
    """Change what is registered of PLATFORM; what is not named stays. The issuer stays."""
    with writing(settings) as session:
        was = registrations.load_registration(session, platform)
        named: dict[str, Any] = {
            name: getattr(was, name) if value is None else value for name, value in fields.items()
        }
        new = NewPlatform(issuer=was.issuer, origins=origins or was.origins, **named)
        changed = registrations.change_platform(session, platform, new, BY)
    click.echo(f"Changed: {', '.join(changed)}." if changed else "Nothing is different.")


@lti.command("remove")
@click.argument("platform", type=int)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def remove(settings: Settings, platform: int, yes: bool) -> None:
    """Forget PLATFORM. Accounts, submissions and grades stay; launches, links and scores to it end."""
    with _store(settings) as store:
        with store.read() as session:
            one = registrations.load_removal_effects(session, platform)
        click.echo(
            f"{one.name}: this ends launches, {one.courses} connected courses, {one.links} links and the "
            f"scores of {one.people} people; {one.waiting} scores that did not arrive yet never will. "
            "Grades stay."
        )
        if not yes:
            click.confirm("Remove it?", abort=True)
        with store.write() as session:
            registrations.remove_platform(session, platform, BY)
    click.echo(f"{one.name} is removed.")


@lti.command("accept")
@click.argument("platform", type=int)
@click.argument("deployment")
@click.pass_obj
def accept(settings: Settings, platform: int, deployment: str) -> None:
    """Let launches of an installation (DEPLOYMENT) of PLATFORM count."""
    with writing(settings) as session:
        registrations.load_platform(session, platform)
        registrations.accept_deployment(session, platform, deployment, BY)
    click.echo("Accepted.")


@lti.command("link")
@click.argument("context", type=int)
@click.argument("course")
@click.pass_obj
def link(settings: Settings, context: int, course: str) -> None:
    """Let the platform's course number CONTEXT (see `grader lti list`) be COURSE here."""
    with writing(settings) as session:
        launch.link_course(session, context, versions.find_or_create_course(session, course).id, BY)
    click.echo("They belong together now.")


@lti.command("invite")
@click.pass_obj
def invite(settings: Settings) -> None:
    """Make a link by which a platform registers itself, once within two days."""
    with writing(settings) as session:
        secret = registrations.make_ticket(session, BY)
    click.echo(f"{settings.config.server.public_url.rstrip('/')}/lti/register/{secret}")


@lti.command("rotate")
@click.pass_obj
def rotate(settings: Settings) -> None:
    """Sign with a new key; the old one is shown for another week."""
    made = new_key()
    with writing(settings) as session:
        registrations.rotate_key(session, made, BY)
    click.echo(f"The key {made.kid} signs from now on.")


@lti.command("roster")
@click.argument("context", type=int)
@click.pass_obj
def update_roster(settings: Settings, context: int) -> None:
    """Bring the roster of the platform's course number CONTEXT up to date."""
    with _store(settings) as store:
        count, gone = launch.update_roster(store, _passback(settings, store).talk, context, BY)
    click.echo(f"{count} people are in it; {gone} are not there any more and keep their place here.")


@lti.command("compare")
@click.pass_context
def compare(context: click.Context) -> None:
    """Compare the scores of all platforms with ours; nothing is changed. Exit 1 where some differ."""
    with _store(context.obj) as store:
        count = _passback(context.obj, store).compare()
    click.echo(f"{count} scores differ." if count else "No score differs.")
    if count:
        raise GraderError("The page “Learning platform” of each course says which, and sends them again.")


@lti.command("platform")
@click.option("--host", default="localhost", show_default=True, help="Another loopback name than Grader's.")
@click.option("--port", type=click.IntRange(1, 65535), default=8090, show_default=True, help="Its port.")
@click.option("--kind", type=click.Choice(["moodle", "canvas"]), default="moodle", show_default=True)
@click.pass_obj
def platform(settings: Settings, host: str, port: int, kind: str) -> None:
    """A small Moodle or Canvas to try LTI with, on this computer only. It is registered by itself."""
    from cli.dev.platforms.server import KINDS, Running, join

    if host not in ("localhost", "127.0.0.1", "::1") and not host.endswith(".localhost"):
        raise GraderError("The test platform believes whoever says who they are: this computer only.")
    world = KINDS[kind](f"http://{host}:{port}", settings.config.server.public_url.rstrip("/"))
    world.furnish()
    with writing(settings) as session:
        join(session, world)
    with Running(world, host, port):
        click.echo(f"The test platform answers at {world.base}. Ctrl-C ends it.")
        _until_ended()


def _until_ended() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo("Ended.")


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
