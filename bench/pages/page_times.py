"""Every GET page and API list of the app, by a student, a teacher and an administrator: time and queries."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import event
from werkzeug.routing import Rule

from app.api.paging import MOST, Paged
from app.api.routes import PREFIX, ROUTES
from bench.pages.dataset import url_arguments
from bench.pages.school import School
from grading.store import Store, tables
from grading.store.accounts import sessions, users

ROLES = ("student", "teacher", "admin")
EVERYBODY = ("student", "grader", "teacher", "admin")
"""Also who grades: sees what the teacher sees, but for settings."""
NO_PAGES = (
    "static",
    "bootstrap.static",
    "metrics",
    "operations.health",
    "operations.ready",
    "operations.security_txt",
)
"""No pages."""
FILES = (".csv", ".zip", ".pdf", ".svg", ".png", ".json.gz", ".ipynb")
"""How addresses of exports end; they take as long as what they hold."""
EXPORTS = frozenset({"results.class_pdfs", "api.description"})
LIST_FILTERS: Mapping[str, Sequence[str]] = {
    "api.assignments": ("course={course_id}",),
    "api.courses": ("archived=true",),
    "api.deliveries": ("state=failed", "receiver=lms", "until=2001-01-01T00:00:00Z"),
    "api.members_of_course": ("role=grader", "search=s00"),
    "api.regrade_requests": ("state=open", "state=declined", "course={course_id}"),
    "api.submissions": (
        "sort=oldest", "status=graded", "status=failed", "status=queued", "released=true", "released=false",
        "flagged=true", "flagged=false", "course={course_id}", "course={course_id}&status=failed",
        "assignment={assignment_id}", "assignment={assignment_id}&flagged=false", "student=s0000",
        "student=s0000&status=failed", "since=2001-01-01T00:00:00Z", "until=2001-01-01T00:00:00Z",
    ),
    "api.users": ("search=s00", "kind=staff", "kind=administrators", "kind=disabled", "kind=invited"),
}  # fmt: skip
"""Of lists of the API, which are asked for as long as they may be: once more with each of these."""
LEAST_TIMES = 2
"""Times in a turn that also a slow page is asked for."""
WARM_UP = 10
"""Times a page is asked for first: by then its statements are prepared, as in a server that runs."""
WARM_UP_AGAIN = 2
"""And first in each of the turns after."""
ROUNDS = 20
"""Turns in which all pages are asked for: a busy moment of the computer meets a page once, not always."""
LIMIT_MS = 100.0
"""What the 95th percentile of a page may take."""


@dataclass(frozen=True)
class PageTime:
    """One page as one role. Milliseconds of the server, without the network."""

    endpoint: str
    role: str
    status: int
    queries: int
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    processor_p95_ms: float = 0.0
    """As `PageTimer.processor` counts, which a busy computer disturbs less."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class PageTimer:
    """Asks for all pages of an app."""

    def __init__(self, app: Flask, store: Store, school: School, roles: Sequence[str] = ROLES) -> None:
        self.app, self.store, self.school, self.roles = app, store, school, roles
        self.processor: Callable[[], float] = time.process_time
        """Processor seconds so far."""
        self.left_out: set[str] = set()
        """Pages with an argument that nothing stands for; say what it is in `url_arguments`."""
        app.config["RATELIMIT_ENABLED"] = False
        with store.read() as session:
            self.ids = url_arguments(session, school)
        whom = {"student": school.students[0], **school.staff}
        self.clients = {role: self._client(whom[role]) for role in roles}
        self.tokens = {role: self._token(whom[role], role) for role in roles}

    def pages(self) -> Iterator[tuple[str, str]]:
        """Endpoint and address of each, exports left out; of a list of the API with each filter, too."""
        paged = {f"api.{one.name}" for one in ROUTES if one.query and issubclass(one.query, Paged)}
        for rule in sorted(self.app.url_map.iter_rules(), key=lambda one: (one.endpoint, one.rule)):
            if "GET" not in (rule.methods or ()) or rule.endpoint in NO_PAGES or self._export(rule):
                continue
            if not rule.arguments <= set(self.ids):
                self.left_out.add(rule.endpoint)
                continue
            with self.app.test_request_context():
                values = {name: self.ids[name] for name in rule.arguments}
                url = self.app.url_for(rule.endpoint, **values)  # type: ignore[arg-type]  # of any kind
            # out of the context, or it would be the one of all requests
            yield rule.endpoint, f"{url}?limit={MOST}" if rule.endpoint in paged else url
            for one in LIST_FILTERS.get(rule.endpoint, ()):
                yield f"{rule.endpoint}?{one}", f"{url}?limit={MOST}&{one.format_map(self.ids)}"

    def queries(self) -> dict[tuple[str, str], tuple[int, int]]:
        """(endpoint, role) -> status, and queries: of a page when it is asked for the second time."""
        found = {}
        for endpoint, url in self.pages():
            if "?" in endpoint:  # a filter changes a query, not how many there are
                continue
            for role in self.roles:
                for _ in range(2):
                    with counted(self.store) as said:
                        status = self.ask(role, url)
                    if status != HTTPStatus.OK:
                        break
                found[endpoint, role] = status, len(said)
        return found

    def timed(self, times: int, most_s: float, only: str = "", turns: int = ROUNDS) -> Iterator[PageTime]:
        """Each page so many times, or for so long, in turns with all others."""
        mine: dict[tuple[str, str], list[tuple[float, float]]] = {}
        asked = [
            (endpoint, url, role) for endpoint, url in self.pages() if only in endpoint for role in self.roles
        ]
        few = min(WARM_UP, times)
        first = {(endpoint, role): self._first(role, url, few, most_s) for endpoint, url, role in asked}
        for _ in range(turns if times else 0):
            for endpoint, url, role in asked:
                if first[endpoint, role][0] == HTTPStatus.OK:
                    found = self._times(role, url, max(1, times // turns), most_s / turns)
                    mine.setdefault((endpoint, role), []).extend(found)
        for (endpoint, role), (status, queries) in first.items():
            looks, used = zip(*mine.get((endpoint, role), [(0.0, 0.0)]), strict=True)
            spread = (statistics.median(looks), _p95(looks), _p95(used))
            yield PageTime(endpoint, role, status, queries, *(round(1000 * one, 2) for one in spread))

    def _first(self, role: str, url: str, times: int, most_s: float) -> tuple[int, int]:
        """Status and queries, when all is warm."""
        until = time.monotonic() + most_s
        for _ in range(times):
            if self.ask(role, url) != HTTPStatus.OK or time.monotonic() > until:
                break
        with counted(self.store) as said:
            status = self.ask(role, url)
        return status, len(said)

    def ask(self, role: str, url: str) -> int:
        """The status; the whole answer is read."""
        if url.startswith(f"{PREFIX}/"):
            headers = {"Authorization": f"Bearer {self.tokens[role]}"}
            answer = self.app.test_client(use_cookies=False).get(url, headers=headers)
        else:
            answer = self.clients[role].get(url)
        answer.get_data()
        answer.close()
        return answer.status_code

    def _times(self, role: str, url: str, times: int, most_s: float) -> list[tuple[float, float]]:
        """Of each request the seconds, and those of the processor."""
        mine: list[tuple[float, float]] = []
        for _ in range(WARM_UP_AGAIN):
            self.ask(role, url)
        until = time.monotonic() + most_s
        while len(mine) < times and (len(mine) < LEAST_TIMES or time.monotonic() < until):
            used, began = self.processor(), time.perf_counter()
            self.ask(role, url)
            mine.append((time.perf_counter() - began, self.processor() - used))
        return mine

    def _client(self, user_id: int) -> FlaskClient:
        client = self.app.test_client()
        with self.store.write() as session, client.session_transaction() as cookie:
            user, begun = session.get_one(tables.User, user_id), sessions.create_session(session, user_id)
            cookie["_user_id"] = f"{user.id}:{users.session_stamp(user)}:{begun}"
            cookie["_fresh"] = True
        return client

    def _token(self, user_id: int, role: str) -> str:
        scopes = ("read", "grade", "manage", *(["admin"] if role == "admin" else ()))
        with self.store.write() as session:
            return users.create_token(session, user_id, "bench", scopes, timedelta(days=1)).secret

    def _export(self, rule: Rule) -> bool:
        return rule.endpoint in EXPORTS or rule.rule.endswith(FILES) or "export" in rule.endpoint


@contextmanager
def counted(store: Store) -> Iterator[list[str]]:
    """The statements that are sent meanwhile."""
    said: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        said.append(statement)

    engines = {store.engine, store.autocommit_engine}
    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", note)


def grown(
    before: Mapping[tuple[str, str], tuple[int, int]], after: Mapping[tuple[str, str], tuple[int, int]]
) -> list[str]:
    """Pages that send more queries where there are more rows, in words."""
    return [
        f"{endpoint} as {role}: {before[endpoint, role][1]} queries, with more rows {count}"
        for (endpoint, role), (_, count) in after.items()
        if (endpoint, role) in before and count > before[endpoint, role][1]
    ]


def _p95(found: Sequence[float]) -> float:
    return sorted(found)[min(len(found) - 1, int(0.95 * len(found)))]


def lines(found: Sequence[PageTime]) -> Iterator[str]:
    """A table, the slowest first; those who may not see a page are left out."""
    yield f"{'page':<34} {'role':<8} {'queries':>7} {'p50 ms':>8} {'p95 ms':>8}"
    for one in sorted(found, key=lambda one: -one.p95_ms):
        if one.p95_ms:
            mark = " !" if one.p95_ms > LIMIT_MS else ""
            times = f"{one.p50_ms:>8.2f} {one.p95_ms:>8.2f}{mark}"
            yield f"{one.endpoint:<34} {one.role:<8} {one.queries:>7} {times}"
