"""What a school to be looked at has to do with other systems: platforms, Canvas, receivers, faults."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from grading.integrations.canvas.values import Task
from grading.store import tables
from grading.store.database import now
from grading.store.integrations import webhooks
from grading.store.integrations.canvas import links
from grading.store.integrations.canvas.tables import CanvasAttempt, CanvasLink, CanvasScore
from grading.store.integrations.lti import launch, registrations
from grading.store.integrations.lti.registrations import NewPlatform
from grading.store.integrations.lti.tables import LtiContext, LtiDifference, LtiScore, LtiScoreAttempt
from tests.integration.webapp import School

REFUSED = "sending a score: the platform answered 422: Unprocessable: the line item is closed"
AWAY = "Canvas does not answer: no complete response within 15\N{NO-BREAK SPACE}s"


def connect(school: School, shown: int) -> None:
    """Two platforms, one of which waits to be accepted, a Canvas, and two receivers, one of them paused."""
    with school.store.write() as session:
        moment = now(session)
        users = [user for name, user in sorted(school.users.items()) if name.startswith("s3")][:4]
        _platforms(session, school, shown, users, moment)
        _canvas(session, school.assignment, users, moment)
        _deliveries(session, moment)
        for _ in range(2):
            webhooks.create_secret(session, "canvas", "only for pictures", "Administrator")
        webhooks.revoke_secret(session, 1, "Administrator")


def _platforms(session: Session, school: School, shown: int, users: list[int], moment: datetime) -> None:
    moodle = registrations.register_platform(
        session, _new("Moodle", "https://moodle.school.example", ("1",)), "Administrator"
    )
    brightspace = registrations.register_platform(
        session, _new("Brightspace", "https://lms.college.example", ()), "Administrator"
    )
    registrations.deployment_accepted(session, brightspace, "b7c1e0d2-57f4-4a51-9d3e-1f0c5a7e6b11")
    context = LtiContext(
        platform_id=moodle, deployment="1", context="42", title="BA1 Business Analytics (autumn)", scopes=[],
        roster_at=moment - timedelta(hours=2),
    )  # fmt: skip
    session.add(context)
    session.flush()
    launch.link_course(session, context.id, school.course, "Administrator")
    link = launch.add_link(session, context.id, "link-7", shown, "lti")
    link.compared_at = moment - timedelta(hours=5)
    for number, user in enumerate(users):
        score = LtiScore(link_id=link.id, user_id=user, points=15.5 - number, max_points=20.0)
        score.sent_at, score.error = moment - timedelta(minutes=9 * number), REFUSED if number == 3 else ""
        session.add(score)
        session.add(
            LtiScoreAttempt(
                link_id=link.id, user_id=user, at=score.sent_at, points=score.points,
                status=422 if score.error else 204, error=score.error,
            )
        )  # fmt: skip
    session.add(
        LtiDifference(
            link_id=link.id, user_id=users[1], ours=14.5, theirs=17.0, max_points=20.0, found_at=moment
        )
    )


def _new(name: str, base: str, deployments: tuple[str, ...]) -> NewPlatform:
    return NewPlatform(
        name, base, f"{name.lower()}-8f2c", f"{base}/auth", f"{base}/token", f"{base}/jwks",
        deployments=deployments,
    )  # fmt: skip


def _canvas(session: Session, assignment: int, users: list[int], moment: datetime) -> None:
    task = Task("2001", "101", "Homework 1", 20.0, True)
    number = links.link_assignment(session, "canvas", task, "Business Analytics", assignment, "Administrator")
    row = session.get_one(CanvasLink, number)
    row.pulled_at = moment - timedelta(minutes=4)
    for attempt, user in enumerate(users[:2]):
        taken = CanvasAttempt(link_id=number, user_id=user, attempt=1, late=False, at=moment)
        taken.error = "homework.docx cannot be graded; submit .ipynb, .py or .zip." if attempt else ""
        session.add(taken)
    failed = CanvasScore(link_id=number, user_id=users[0], points=None, error=AWAY)
    differs = CanvasScore(link_id=number, user_id=users[2], points=17.0, theirs=12.0, differs_at=moment)
    for score in (failed, differs):
        score.sent_digest, score.lease, score.sent_at = "", 1, moment - timedelta(hours=1)
        session.add(score)


def _deliveries(session: Session, moment: datetime) -> None:
    session.add(
        tables.EventReceiver(
            name="archive", mark="m", failures=12, failing_since=moment - timedelta(days=2, hours=3),
            paused_at=moment - timedelta(hours=3),
        )
    )  # fmt: skip
    tries = [
        ("lms", 204, "", "grade.released"),
        ("archive", 503, "The receiver answered 503.", "grade.released"),
    ]
    tries += [
        ("lms", 204, "", "submission.completed"),
        ("archive", None, "no complete response within 15\N{NO-BREAK SPACE}s", "grade.changed"),
    ]
    for number, (receiver, status, error, kind) in enumerate(tries):
        session.add(
            tables.SentMessage(
                receiver=receiver, message_id=f"msg_{number:032x}", event=f"released:{number}", type=kind,
                submission_id=None, attempt=number + 1, seconds=0.12,
                at=moment - timedelta(minutes=7 * number),
                url=f"https://{receiver}.school.example/grader-events",
                headers={"webhook-id": f"msg_{number:032x}", "content-type": "application/json"},
                body=f'{{"type": "{kind}", "data": {{"status": "completed"}}}}', status=status, error=error,
                answer="" if status == 204 else "<html>Service Unavailable</html>",
            )
        )  # fmt: skip
