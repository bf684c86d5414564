"""Messages to and from learning systems: missing secrets, shut addresses, paused receivers."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy.exc import SQLAlchemyError

from cli.doctor.finding import Finding, Patient, failure, shut, warning
from cli.settings import lms_secrets
from grading.domain.learning_platforms import platform_modules
from grading.store import Store
from grading.store.integrations import webhooks
from grading.store.reporting.operations import file_of


def check(patient: Patient) -> Iterator[Finding]:
    """All of it. What only the database knows is left out while that is away, which is said elsewhere."""
    for platform in platform_modules("cli.commands.{}").values():
        yield from platform.diagnose(patient)
    server = patient.config.server
    if not (server.lms_connections or server.event_receivers):
        return
    made_here, paused = _stored(patient)
    for name, secrets in lms_secrets(patient.config, patient.environ).items():
        if not secrets and name not in made_here:
            variable = f"GRADER_LMS_{name.upper().replace('-', '_')}_SECRET"
            message = f"server.lms_connections: '{name}' has no secret; {variable} is not set"
            remedy = f"set it to what the other side signs with, or run `grader webhook secret add {name}`"
            yield failure("secrets", message, remedy)
    for receiver in server.event_receivers:
        problem = shut(receiver.url, server.allowed)
        if problem:
            yield warning("events", f"receiver {receiver.name}: {problem}", "see docs/events.md")
        if receiver.name in paused:
            message = f"receiver {receiver.name} took nothing for two days and is paused; its messages wait"
            yield failure("events", message, f"mend it, then `grader webhook resume {receiver.name}`")


def _stored(patient: Patient) -> tuple[set[str], set[str]]:
    """Connections with a live secret that was made here, and receivers that are paused."""
    store = Store(patient.config.database.url)
    try:
        file = file_of(store)
        if file is not None and not file.exists():
            return set(), set()
        with store.read() as session:
            live = {one.connection for one in webhooks.list_secrets(session) if one.ended_at is None}
            return live, {one.name for one in webhooks.list_receivers(session) if one.paused_at is not None}
    except (SQLAlchemyError, OSError):
        return set(), set()
    finally:
        store.close()
