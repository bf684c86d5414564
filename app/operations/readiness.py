"""Whether this web app can take uploads now, for load balancers and operators."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from app.web.services import Services, services
from grading.broker.rate_counts import answers
from grading.store import Store, schema
from grading.store.away import refuses_password
from grading.store.database import now
from grading.store.schema import Fit

FITS: Mapping[Fit, tuple[bool, str]] = {
    "same": (True, "ok"),
    "newer": (True, "ok, and newer than this process; start it again with the new version"),
    "older": (False, "migrations are missing; run `grader db upgrade`"),
    "unknown": (False, "newer than this process works with; start it again with the new version"),
}
"""Whether uploads are accepted, and what is said of the database."""
SQL_REFUSED = "password refused; put the right one into GRADER_DATABASE_URL"
REDIS_REFUSED = "password refused; work waits in the database until GRADER_REDIS_URL is right"
CLOCK_S = 60.0
"""A clock that differs by more is wrong: sessions begun here would not be valid on other hosts yet."""


@dataclass(frozen=True)
class Readiness:
    """This process and what it needs, in words. `status` is ok, degraded, unavailable or draining."""

    status: str
    database: str
    redis: str
    machines_alive: int
    clock: str = "ok"

    @property
    def ready(self) -> bool:
        """Whether requests may be sent here."""
        return self.status in ("ok", "degraded")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def readiness() -> Readiness:
    """Look at the database, Redis, the machines and the clock."""
    app_services = services()
    dispatch, counts = app_services.dispatch, app_services.rate_counts
    # who asks gives up after seconds, and would stop sending requests here if this waited for Redis
    there = counts is None or answers(counts)
    backlog = dispatch.backlog() if there else None
    alive = sum(machine.alive for machine in dispatch.machines()) if there else 0
    away = REDIS_REFUSED if dispatch.password_refused() else "away; work waits in the database"
    redis = "ok" if backlog is not None else away
    clock, status = "ok", "ok" if backlog is not None and alive else "degraded"
    try:
        usable, database = FITS[schema.fit_of(schema.current_revision(app_services.store))]
        wrong_s = _clock_wrong_s(app_services) if there else 0.0
        if wrong_s:
            clock = f"differs by {wrong_s:.0f} s from the database and Redis; synchronize it by NTP"
    except SQLAlchemyError as error:
        usable, database = False, SQL_REFUSED if refuses_password(error) else "away"
    if not usable or clock != "ok":
        status = "unavailable"
    if app_services.draining():
        status = "draining"
    return Readiness(status, database, redis, alive, clock)


def _clock_wrong_s(app_services: Services) -> float:
    """By how many seconds this host's clock differs from two others that agree; 0 where it does not."""
    theirs = app_services.dispatch.clock()
    if theirs is None:
        return 0.0
    database, here = _database_clock(app_services.store), time.time()
    wrong_s = abs(here - database)
    agree = abs(database - theirs) <= CLOCK_S
    return wrong_s if agree and min(wrong_s, abs(here - theirs)) > CLOCK_S else 0.0


def _database_clock(store: Store) -> float:
    with store.read_autocommit() as session:
        return now(session).timestamp()
