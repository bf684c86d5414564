"""`grader canvas`: a Canvas by its API, for schools that cannot use LTI.

How to set it up: docs/how-to/administrators/canvas.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches

import click
from sqlalchemy.orm import Session

from cli.commands.admin import writing
from cli.doctor.finding import Finding, Installation, failure, shut, warning
from cli.output import counted
from cli.settings import Settings
from grading.domain.errors import GraderError, NotFound
from grading.integrations.canvas.settings import Canvas
from grading.integrations.canvas.settings import Settings as CanvasSettings
from grading.integrations.canvas.values import NotForTheBridge, place, tokens
from grading.store import schema
from grading.store.assignments import versions
from grading.store.integrations.canvas import links, scores
from grading.store.tables import Assignment
from workers.server.context import open_server
from workers.server.delivery.canvas import Bridge, Pulled

BY = "cli"
LINK = click.option(
    "--link", "only", type=click.IntRange(1, 2**31 - 1), help="Only the link with this number."
)


@click.group()
def canvas() -> None:
    """Connect Canvas by its API, where LTI cannot be used.

    The sweeper pulls and pushes automatically; these commands do it now.
    """


@canvas.command("check")
@click.pass_obj
def check(settings: Settings) -> None:
    """Check the connection to each Canvas of config.toml."""
    found = _canvases(settings)
    if not found:
        click.echo("config.toml has no [[server.canvases]]. See docs/how-to/administrators/canvas.md.")
    with _bridge(settings) as bridge:
        for one in found:
            click.echo(
                f"{one.name}: {one.url} answers. The token belongs to its user {bridge.talk(one.name).me}."
            )


@canvas.command("assignments")
@click.argument("name")
@click.argument("course")
@click.pass_obj
def listed(settings: Settings, name: str, course: str) -> None:
    """List the assignments of COURSE in the Canvas NAME.

    COURSE is the course's number in Canvas. Each line says whether the assignment can be linked.
    """
    with _bridge(settings) as bridge:
        talk = bridge.talk(name)
        for one in talk.tasks(course):
            state = f"cannot be linked: {one.problem}" if one.problem else "can be linked"
            click.echo(f"{talk.base}/courses/{course}/assignments/{one.id}  {one.title}: {state}")


@canvas.command("link")
@click.argument("address")
@click.argument("assignment")
@click.pass_obj
def link(settings: Settings, address: str, assignment: str) -> None:
    """Link the Canvas assignment at ADDRESS to ASSIGNMENT.

    ADDRESS is the one that the browser shows in Canvas; ASSIGNMENT is course/slug.
    """
    found = [one for one in _canvases(settings) if address.startswith(f"{one.url}/")]
    if not found:
        raise NotForTheBridge("config.toml has no [[server.canvases]] with this address.")
    course, number = place(address, found[0].url)
    with _bridge(settings) as bridge:
        talk = bridge.talk(found[0].name)
        task, title = talk.task(course, number), talk.course_title(course)
    with writing(settings) as session:
        meant = _find_assignment(session, assignment)
        versions.published_version(session, meant)
        made = links.link_assignment(session, found[0].name, task, title, meant.id, BY)
    click.echo(f"Link {made}: “{task.title}” in Canvas to {assignment}. The sweeper pulls submissions soon.")
    if not task.published:
        click.echo("The assignment is not published in Canvas yet.")


@canvas.command("unlink")
@click.argument("number", type=click.IntRange(1, 2**31 - 1))
@click.pass_obj
def unlink(settings: Settings, number: int) -> None:
    """Remove the link NUMBER.

    Submissions and grades stay, in Grader and in Canvas.
    """
    with writing(settings) as session:
        links.unlink(session, number, BY)
    click.echo(f"Removed link {number}.")


@canvas.command("list")
@click.pass_obj
def listing(settings: Settings) -> None:
    """List links with their last pull, scores and errors."""
    with writing(settings) as session:
        found = links.list_links(session)
    for one in found:
        when = f"pulled {one.pulled_at:%Y-%m-%d %H:%M} UTC" if one.pulled_at else "not pulled yet"
        at = f"{one.link.connection} {one.link.canvas_course}/{one.link.canvas_assignment}"
        click.echo(f"{one.link.id}  {at} → {one.link.course}, {one.link.title}: {when}")
        click.echo(
            f"   {one.imported} attempts pulled, {one.refused} of them refused; "
            f"{one.sent} scores sent, {one.failed} failed, {one.differ} differ"
        )
        for error in one.errors:
            click.echo(f"   {error}")
    if not found:
        click.echo("There are no links. Create one: grader canvas link ADDRESS COURSE/ASSIGNMENT")


@canvas.command("pull")
@LINK
@click.pass_obj
def pull(settings: Settings, only: int | None) -> None:
    """Pull people and new submissions now."""
    with _bridge(settings) as bridge:
        _say(bridge.pull(only))


@canvas.command("push")
@click.option("--again", is_flag=True, help="Also scores that failed or differ.")
@LINK
@click.pass_obj
def push(settings: Settings, again: bool, only: int | None) -> None:
    """Push released scores now."""
    with _bridge(settings) as bridge:
        bridge.reconcile()
        if again:
            _again(bridge, only)
        _posted(bridge)


@canvas.command("sync")
@click.pass_obj
def sync(settings: Settings) -> None:
    """Pull and push now."""
    with _bridge(settings) as bridge:
        brought = bridge.pull()
        bridge.reconcile()
        _posted(bridge)
        _say(brought)


@canvas.command("compare")
@LINK
@click.pass_obj
def compare(settings: Settings, only: int | None) -> None:
    """Compare the scores in Canvas with Grader's.

    Changes nothing. Exits with status 1 if scores differ.
    """
    with _bridge(settings) as bridge:
        count = bridge.compare(only)
    click.echo(f"{counted(count, 'score')} differ." if count else "All scores match.")
    if count:
        raise GraderError("Send them again: grader canvas push --again")


def _find_assignment(session: Session, name: str) -> Assignment:
    """The assignment; NotFound names the one that is like it."""
    try:
        return versions.find_by_name(session, name)
    except NotFound as error:
        like = get_close_matches(name, versions.list_names(session), 1)
        raise NotFound(f"{error.message} Did you mean '{like[0]}'?" if like else error.message) from None


def _again(bridge: Bridge, only: int | None) -> None:
    with bridge.server.store.write() as session:
        for one in links.list_live_links(session, only):
            scores.resend_scores(session, one.id)


def _posted(bridge: Bridge) -> None:
    count = bridge.push()
    with bridge.server.store.read() as session:
        failed = sum(one.failed for one in links.list_links(session))
    click.echo(f"{counted(count, 'score')} sent.")
    if failed:
        raise GraderError(f"{counted(failed, 'score')} failed and will be retried. See `grader canvas list`.")


def _say(brought: Pulled) -> None:
    click.echo(
        f"{brought.people} people and {brought.submitted} new submissions pulled, "
        f"{brought.refused} attempts refused."
    )
    if brought.errors:
        raise GraderError(" ".join(brought.errors))


def _canvases(settings: Settings) -> tuple[Canvas, ...]:
    return settings.config.server.of_platform(CanvasSettings).canvases


@contextmanager
def _bridge(settings: Settings) -> Iterator[Bridge]:
    server = open_server(settings.config)
    try:
        schema.require_usable(server.store)
        yield Bridge(server, tokens(_canvases(settings), os.environ))
    finally:
        server.store.close()


def diagnose(installation: Installation) -> Iterator[Finding]:
    """For `grader doctor`: addresses that are not permitted, and missing tokens."""
    server = installation.config.server
    canvases = server.of_platform(CanvasSettings).canvases
    available = tokens(canvases, installation.environ)
    for one in canvases:
        problem = shut(one.url, server.allowed)
        if problem:
            yield warning(
                "canvas_closed",
                "canvas",
                f"Canvas {one.name}: {problem}",
                "see docs/how-to/administrators/canvas.md",
            )
        if one.name not in available:
            message = f"server.canvases: '{one.name}' has no token; {one.token_variable} is not set"
            yield failure(
                "canvas_token_missing",
                "canvas",
                message,
                "set it for the sweeper, too, then `grader canvas check`",
            )
