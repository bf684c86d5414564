"""The relay under kill -9: at every moment between a grade and its delivery; nothing is lost, ids stay."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from grading.config.settings import load
from grading.store import Store, schema
from grading.store.tables import Outbox
from tests.support.factories import add_assignment, begin_round, result, submit
from tests.support.servers.receiver import receiver_server
from tests.support.services import SqliteDatabases
from tests.support.system import close_dispatch
from workers.server import record
from workers.server.context import Server, open_server
from workers.server.delivery import webhooks
from workers.server.delivery.webhooks import LEASE_S, Receiver, Relay
from workers.server.prepare import prepare

MOMENTS = ("before anything", "after the fan-out", "before the request", "after the answer")


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(url: str, config: Any, receiver: Receiver, moment: str, offset_s: float) -> None:
    """A relay of its own process that dies at this moment."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"it lived through {moment}"
        return
    try:
        real = webhooks.ask

        def asked(*args: Any, **kwargs: Any) -> Any:
            if moment == "before the request":
                die()
            real(*args, **kwargs)
            die()

        webhooks.ask = asked  # type: ignore[attr-defined]
        server = Server(config, Store(url, clock_offset_s=offset_s), None)  # type: ignore[arg-type]
        relay = Relay(server, (receiver,))
        if moment == "before anything":
            die()
        relay.fan_out()
        if moment == "after the fan-out":
            die()
        relay.deliver(receiver)
    finally:
        os._exit(0)


def graded(server: Server, assignment: int, student: str) -> str:
    accepted = submit(server.store, assignment, student)
    assert prepare(server, accepted.round_id)
    with server.store.write() as session:
        orders = begin_round(session, accepted.round_id)
    for order in orders:
        record.record(server, [result(order.run_id, order.round_id, order.stage)])
    return accepted.submission_id


@pytest.mark.parametrize("times", [8, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.timeout(1200)
def test_every_grade_is_delivered_under_one_id(
    times: int, sqlite_databases: SqliteDatabases, redis_url: str, root: Path
) -> None:
    url = sqlite_databases.fresh(schema.upgrade)
    config = load(root / "config.toml", {"GRADER_DATABASE_URL": url, "GRADER_REDIS_URL": redis_url})
    here = config.server.model_copy(update={"outside_allowed": ("127.0.0.1/32",)})
    config = config.model_copy(update={"server": here})
    server = open_server(config)
    submissions, assignment = [], add_assignment(server.store)
    with receiver_server() as there:
        receiver = Receiver("lms", there.url, (b"n" * 32,))
        for number in range(times):
            submissions.append(graded(server, assignment, f"s{number}"))
            server.store.engine.dispose()  # nothing of the database is shared with the other process
            killed(url, config, receiver, MOMENTS[number % len(MOMENTS)], number * (LEASE_S + 1))
        server.store.clock_offset_s = (times + 1) * (LEASE_S + 1)
        relay = Relay(server, (receiver,))
        while relay.relay():
            pass
    by_event: dict[str, set[str]] = {}
    for posted in there.posted:
        by_event.setdefault(posted.body.decode(), set()).add(posted.headers["webhook-id"])
    assert all(len(ids) == 1 for ids in by_event.values())
    for submission in submissions:
        for kind in ("submission.received", "submission.completed"):
            assert sum(f'"{kind}"' in body and submission in body for body in by_event) == 1
    with server.store.read() as session:
        assert (
            session.scalars(select(Outbox.key).where(Outbox.done_at.is_(None), Outbox.kind == "to:lms")).all()
            == []
        )
    close_dispatch(server.dispatch)
    server.store.close()
