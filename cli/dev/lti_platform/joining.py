"""Making the test platform and Grader known to each other, without anybody typing."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from cli.dev.lti_platform.world import World
from grading.integrations.lti.values import ASSIGNMENT
from grading.store.integrations.lti import launch, platforms
from grading.store.integrations.lti.platforms import NewPlatform
from grading.store.integrations.lti.tables import LtiContext, LtiPlatform

BY = "cli"


def join(session: Session, world: World) -> int:
    """Register the platform as it is now; its number. One of an earlier start is brought up to date."""
    new = NewPlatform(
        name="Test platform", issuer=world.base, client_id=world.client_id,
        authorize_url=f"{world.base}/authorize", token_url=f"{world.base}/token",
        jwks_url=f"{world.base}/jwks", deployments=(world.deployment,),
    )  # fmt: skip
    known = platforms.find_platform(session, new.issuer, new.client_id)
    if known is None:
        return platforms.register_platform(session, new, BY)
    row = session.get_one(LtiPlatform, known.id)
    row.jwks, row.jwks_at = {}, None  # its keys are new at each start
    return known.id


def furnish(session: Session, world: World, course_id: int, assignments: Mapping[int, str]) -> None:
    """The platform's course is this one, and a link leads to each of these assignments."""
    number = join(session, world)
    here = (LtiContext.platform_id == number, LtiContext.context == world.context)
    row = session.scalar(select(LtiContext).where(*here))
    if row is None:
        row = LtiContext(
            platform_id=number, deployment=world.deployment, context=world.context, scopes=[],
            title=world.title, roster_url=f"{world.base}/memberships",
            line_items_url=f"{world.base}/lineitems",
        )  # fmt: skip
        session.add(row)
        session.flush()
    launch.link_course(session, row.id, course_id, BY)
    world.links.clear()
    for assignment_id, title in assignments.items():
        world.add_link(title, {ASSIGNMENT: str(assignment_id)}, None)
