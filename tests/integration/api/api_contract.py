"""schemathesis on the API, with all its checks and one of ours. Slow to import: tests do so when they run."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import schemathesis
from schemathesis import Case, CheckContext, GenerationMode
from schemathesis import Response as Answer
from schemathesis.engine import events, from_schema
from werkzeug.serving import WSGIRequestHandler, make_server

from app.api.routes import PREFIX
from tests.integration.web.pages_world import EVERYBODY, SCOPED, World, ids_of
from tests.integration.webapp import School

DICTIONARIES = (
    *("course_id", "assignment_id", "user_id", "version_number", "change_id", "request_id"),
    *("id", "run_id", "dry_run_id", "file_path", "delivery_id", "secret_id", "receiver", "student_id"),
)
"""Arguments of addresses that name something which is there, three times of four."""
REFUSED = ["2xx", *"400 401 403 404 409 412 413 415 422 429".split()]
"""What fits the description may still not fit what is there: see `fields_are_described`."""
NOT_SENT = [*"400 401 403 404 405 406 409 412 413 415 422 428 429".split()]


@schemathesis.check
def fields_are_described(_ctx: CheckContext, response: Answer, case: Case) -> None:
    """Of a request that fits the description, no field is called invalid."""
    fits = case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE
    if fits and response.status_code == 422:
        assert response.json()["code"] != "field_invalid", response.text


@dataclass
class Found:
    """What came of a run."""

    calls: int = 0
    statuses: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def configured(world: World, headers: dict[str, str], most: int, **phases: bool) -> schemathesis.Config:
    names = {name: [str(world.ids[name][0])] for name in DICTIONARIES}
    bound = {f"path.{name}": {"dictionary": name, "probability": 0.75} for name in names}
    return schemathesis.Config.from_dict(
        {
            "dictionaries": {
                name: {"values": [int(one) if one.isdecimal() and len(one) < 9 else one for one in values]}
                for name, values in names.items()
            },
            "headers": headers,
            "parameters": bound,
            "checks": {
                "positive_data_acceptance": {"expected-statuses": REFUSED},
                "negative_data_rejection": {"expected-statuses": NOT_SENT},
                "missing_required_header": {"expected-statuses": ["401", "403", "404", "415", "422", "428"]},
            },
            "generation": {"max-examples": most, "deterministic": True},
            "phases": {name: {"enabled": wanted} for name, wanted in phases.items()},
        }
    )


def run(world: World, role: str, most: int, only: str = "", **phases: bool) -> Found:
    """All that schemathesis finds out with a token of this role that may do everything."""
    scopes = ("submit", "read", "grade", "manage", *(["admin"] if role == "admin" else []))
    config = configured(world, world.school.token(role, *scopes), most, **phases)
    found = Found()
    with serving(world) as address:
        schema = schemathesis.openapi.from_url(f"{address}/api/v1/openapi.json", config=config)
        schema = schema.include(path=f"{PREFIX}{only}") if only else schema
        for event in from_schema(schema).execute():
            if isinstance(event, events.ScenarioFinished):
                take(found, event)
            elif isinstance(event, events.NonFatalError):
                found.errors.append(f"{event.label}: {event.value}")
            elif isinstance(event, events.FatalError):
                raise event.exception
    world.back()
    return found


class Quiet(WSGIRequestHandler):
    """Keeps connections and writes nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, *_: object) -> None:
        pass


@contextmanager
def serving(world: World) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, world.school.app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def take(found: Found, event: events.ScenarioFinished) -> None:
    """Count the calls of a scenario and keep what failed, once of each kind."""
    for number, exchange in event.recorder.interactions.items():
        found.calls += 1
        if exchange.response is not None:
            found.statuses[str(exchange.response.status_code)] += 1
        for check in event.recorder.checks.get(number, ()):
            if check.failure_info is not None:
                failure = check.failure_info.failure
                said = f"{failure.message}\n{check.failure_info.code_sample}"
                if exchange.response is not None:
                    said += f"\n{exchange.response.status_code} {exchange.response.content[:300]!r}"
                found.failures.setdefault(f"{event.label}: {failure.title}", said)


class Standing(World):
    """A world on a database that cannot be copied back."""

    def back(self) -> None:
        """It stays as it is."""


def on_postgresql(url: str) -> World:
    """The world on a prepared database."""
    made = Standing(School(url, uploads_per_minute=100_000, api_per_minute=10_000_000), Path())
    made.ids = ids_of(made.school)
    made.bearers = {name: made.school.token(name, *SCOPED) for name in EVERYBODY[1:]}
    return made
