"""A learning platform beside the demo: a click there shows a launch in a frame, and grades arriving."""

from __future__ import annotations

from contextlib import nullcontext
from types import TracebackType

import click

from cli.dev.embedded_redis import free_port
from cli.dev.lti_platform.joining import furnish
from cli.dev.lti_platform.serving import Running
from cli.dev.lti_platform.world import World
from grading.domain.errors import GraderError
from grading.store import Store, tables
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.integrations.lti import launch, platforms
from grading.store.integrations.lti.platform import add_scores
from grading.store.integrations.lti.tables import LtiContext

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
        world = World.furnished(f"http://{HOST}:{port}", tool)
        try:
            _introduce(store, world, course)
            self._running = Running(world, HOST, port)
            self.url = world.base
        except (GraderError, OSError) as error:
            click.echo(f"Without a learning platform to try: {error}", err=True)

    def __enter__(self) -> DemoPlatform:
        (self._running or nullcontext()).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is not None:
            self._running.__exit__(kind, error, trace)


def _introduce(store: Store, world: World, slug: str) -> None:
    """The platform is known, its course is the demo's, and its people are those of the demo."""
    with store.write() as session:
        course = versions.find_or_create_course(session, slug)
        listed = (
            session.query(tables.Assignment).filter_by(course_id=course.id).order_by(tables.Assignment.id)
        )
        furnish(session, world, course.id, {one.id: one.title for one in listed})
        platform = platforms.find_platform(session, world.base, world.client_id)
        assert platform is not None
        for subject, name in PEOPLE.items():
            user = users.find_user(session, "local", name)
            known = users.find_user(session, platform.provider, subject)
            if user is not None and known is None:
                user.identities.append(tables.Identity(provider=platform.provider, subject=subject))
        session.flush()
        context = session.query(LtiContext).filter_by(platform_id=platform.id).one()
        for subject, name in PEOPLE.items():
            user = launch.find_or_create_user(session, platform, subject, "", "")
            launch.enrol_member(session, context, user, subject, name)
        for link in world.links.values():
            assignment = int(link.custom["grader_assignment"])
            launch.add_link(session, context.id, link.id, assignment, "demo")
        student = users.find_user(session, platform.provider, "student-1")
        if student is not None:
            mine = session.query(tables.Submission.id).filter_by(student_id=student.id)
            add_scores(session, [one.id for one in mine])
