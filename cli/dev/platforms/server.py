"""Runs a platform, and registers it with Grader without a click."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType

from sqlalchemy import select
from sqlalchemy.orm import Session
from werkzeug.serving import WSGIRequestHandler, make_server

from cli.dev.platforms.canvas import Canvas
from cli.dev.platforms.moodle import Moodle
from cli.dev.platforms.pages import Platform, create_platform
from grading.integrations.lti.values import ASSIGNMENT
from grading.store.integrations.lti import launch, registrations
from grading.store.integrations.lti.registrations import NewPlatform
from grading.store.integrations.lti.tables import LtiContext, LtiPlatform

BY = "cli"


KINDS: dict[str, type[Moodle] | type[Canvas]] = {"moodle": Moodle, "canvas": Canvas}
"""The platforms there are, by the name of their product."""


def registration_of(world: Platform) -> NewPlatform:
    """How a platform is registered by hand."""
    return NewPlatform(
        name=f"Test {type(world).__name__}", issuer=world.issuer, client_id=world.client_id,
        **world.addresses(), origins=(world.base,), deployments=(world.deployment,),
    )  # fmt: skip


def join(session: Session, world: Platform) -> int:
    """Register the platform as it is now; its number. One of an earlier start is brought up to date."""
    new = registration_of(world)
    platform = registrations.find_platform(session, new.issuer, new.client_id)
    if platform is None:
        return registrations.register_platform(session, new, BY)
    row = session.get_one(LtiPlatform, platform.id)
    row.jwks, row.jwks_at = {}, None  # its keys are new at each start
    return platform.id


def link_course(session: Session, world: Platform, course_id: int, assignments: Mapping[int, str]) -> None:
    """The platform's course is this one, and a link leads to each of these assignments."""
    number = join(session, world)
    here = (LtiContext.platform_id == number, LtiContext.context == world.context)
    row = session.scalar(select(LtiContext).where(*here))
    if row is None:
        row = LtiContext(
            platform_id=number, deployment=world.deployment, context=world.context, scopes=[],
            title=world.title, **world.services(),
        )  # fmt: skip
        session.add(row)
        session.flush()
    launch.link_course(session, row.id, course_id, BY)
    world.links.clear()
    for assignment_id, title in assignments.items():
        world.add_link(title, {ASSIGNMENT: str(assignment_id)}, None)


class _Quiet(WSGIRequestHandler):
    """Logs nothing: addresses carry who somebody says they are."""

    def log(self, type: str, message: str, *args: object) -> None:
        """Nothing."""


class Running:
    """The platform in a thread; a context manager ends it."""

    def __init__(self, world: Platform, host: str, port: int) -> None:
        self.world = world
        self._server = make_server(host, port, create_platform(world), threaded=True, request_handler=_Quiet)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._serve, name="platform", daemon=True)

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
