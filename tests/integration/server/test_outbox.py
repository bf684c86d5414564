"""The outbox on both databases: taken by one, tried as planned, told to every receiver under one id."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import delete, select
from standardwebhooks import Webhook

from cli.dev.embedded_redis import free_port
from cli.settings import event_secrets
from grading.config.settings import Config, load, parse
from grading.domain.errors import ConfigError
from grading.store import Store, outbox, schema
from grading.store.integrations import webhooks
from grading.store.outbox import Delivery
from grading.store.tables import Outbox
from tests.support.factories import add_assignment, begin_round, result, submit
from tests.support.servers.receiver import Posted, receiver_server
from tests.support.services import SqliteDatabases
from tests.support.system import close_dispatch
from workers.server import record
from workers.server.context import Server, open_server
from workers.server.delivery import webhooks as delivery
from workers.server.delivery.webhooks import RETRIES_S, Receiver, Relay, receivers
from workers.server.prepare import prepare

NEW, OLD = b"n" * 32, b"o" * 32
LEASE_S = 60.0


@pytest.fixture
def store(fresh_database: Callable[..., str]) -> Iterator[Store]:
    made = Store(fresh_database(schema.upgrade))
    yield made
    made.close()


def fill(store: Store, count: int, kind: str = "a") -> None:
    with store.write() as session:
        for number in range(count):
            assert outbox.add(session, kind, str(number), {"number": number})


def take(store: Store, limit: int = 1, overdue_s: float = 0.0) -> list[Delivery]:
    with store.write() as session:
        return outbox.claim(session, "a", limit, LEASE_S, overdue_s=overdue_s)


def rows(store: Store, kind: str) -> list[Outbox]:
    with store.read() as session:
        return list(session.scalars(select(Outbox).where(Outbox.kind == kind).order_by(Outbox.id)))


def test_a_row_is_taken_by_one_of_many_senders(store: Store) -> None:
    fill(store, 60)
    begin = threading.Barrier(6)

    def send(_: int) -> list[str]:
        own = Store(store.url)
        begin.wait()
        mine = [row.key for row in take(own, 3)]
        begin.wait()  # nobody is so fast that nothing is left for the others
        while taken := take(own, 3):
            mine += [row.key for row in taken]
        own.close()
        return mine

    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(send, range(6)))
    assert sorted(int(key) for mine in taken for key in mine) == list(range(60))
    assert all(taken)


def test_a_sender_that_died_loses_its_row_when_the_lease_ends(store: Store) -> None:
    fill(store, 1)
    (first,) = take(store)
    assert take(store) == []
    store.clock_offset_s = LEASE_S + 1
    (second,) = take(store)
    assert (first.tries, second.tries) == (1, 2)
    with store.write() as session:  # the first was only slow: it says nothing of the second's try
        assert not outbox.mark_failed(session, first, "late", None)
    assert rows(store, "a")[0].done_at is None
    with store.write() as session:
        outbox.mark_done(session, first)
    store.clock_offset_s = 10 * LEASE_S
    assert take(store) == []


def test_tries_wait_as_long_as_told_and_the_last_leaves_a_dead_row(store: Store) -> None:
    fill(store, 1)
    (row,) = take(store)
    with store.write() as session:
        assert not outbox.mark_failed(session, row, "no\0t yet", 300)
    store.clock_offset_s = 200
    assert take(store) == []
    store.clock_offset_s = 301
    (row,) = take(store)
    with store.write() as session:
        assert outbox.mark_failed(session, row, "", None)
    (dead,) = rows(store, "a")
    assert dead.done_at is not None
    assert dead.error == "failed"
    with store.write() as session:
        assert not outbox.add(session, "a", "0", {"number": 99})
        assert outbox.reopen(session, "a", "0")
        assert not outbox.reopen(session, "a", "none")
    assert [(row.tries, row.payload) for row in take(store)] == [(1, {"number": 0})]


def test_only_what_is_overdue_is_taken(store: Store) -> None:
    fill(store, 1)
    assert take(store, overdue_s=50) == []
    store.clock_offset_s = 51
    assert take(store, overdue_s=600) == []
    assert len(take(store, overdue_s=50)) == 1


# --- events ---------------------------------------------------------------------------------------


@contextmanager
def opened(database_url: str, redis_url: str, root: Path) -> Iterator[Server]:
    environ = {"GRADER_DATABASE_URL": database_url, "GRADER_REDIS_URL": redis_url}
    config = load(root / "config.toml", environ)
    here = config.server.model_copy(update={"outside_allowed": ("127.0.0.1/32",)})
    made = open_server(config.model_copy(update={"server": here}))
    yield made
    close_dispatch(made.dispatch)
    made.store.close()


@pytest.fixture
def server(sqlite_databases: SqliteDatabases, redis_url: str, root: Path) -> Iterator[Server]:
    with opened(sqlite_databases.fresh(schema.upgrade), redis_url, root) as made:
        yield made


@pytest.fixture
def on_both(fresh_database: Callable[..., str], redis_url: str, root: Path) -> Iterator[Server]:
    with opened(fresh_database(schema.upgrade), redis_url, root) as made:
        yield made


def graded(server: Server, student: str = "s1") -> str:
    """A submission that was graded, with its score."""
    accepted = submit(server.store, add_assignment(server.store), student)
    assert prepare(server, accepted.round_id)
    with server.store.write() as session:
        orders = begin_round(session, accepted.round_id)
    for order in orders:
        record.record(server, [result(order.run_id, order.round_id, order.stage)])
    with server.store.write() as session:  # one event each is enough here
        session.execute(delete(Outbox).where(Outbox.key == f"received:{accepted.submission_id}"))
    return accepted.submission_id


def to(url: str, name: str = "lms") -> Receiver:
    return Receiver(name, url, (NEW, OLD))


def assert_signed(posted: Posted) -> None:
    """By the reference library, with either secret; times are the database's, which tests shift."""
    moment = datetime.fromtimestamp(int(posted.headers["webhook-timestamp"]), UTC)
    name = posted.headers["webhook-id"]
    assert posted.headers["webhook-signature"].split(" ") == [
        Webhook(key).sign(name, moment, posted.body.decode()) for key in (NEW, OLD)
    ]


def test_a_receiver_that_was_down_for_a_day_is_told_everything_after_it_once(on_both: Server) -> None:
    """One that said 500, then was away; while it is, more happens. Each event keeps its id."""
    server, port, day = on_both, free_port(), 86_400
    submissions = [graded(server)]
    relay = Relay(server, (to(f"http://127.0.0.1:{port}/events"),))
    with receiver_server(port) as there:
        there.status = 500
        assert relay.relay() == 0
    for server.store.clock_offset_s in range(0, day, 2 * 3600):
        assert relay.relay() == 0
        if server.store.clock_offset_s % (6 * 3600) == 0:
            submissions.append(graded(server, f"s{server.store.clock_offset_s}"))
    with receiver_server(port, into=there):
        there.status = 200
        taken = 0
        for server.store.clock_offset_s in range(day, 3 * day, 4 * 3600):
            taken += relay.relay()
    assert taken == len(submissions) == len(there.posted) - 1
    first, *later = there.posted
    ids = [posted.headers["webhook-id"] for posted in later]
    assert len(set(ids)) == len(ids)
    assert first.headers["webhook-id"] in ids
    for posted in there.posted:
        assert_signed(posted)
    assert {json.loads(posted.body)["data"]["submission"] for posted in later} == set(submissions)
    assert all(row.done_at is not None and row.error == "" for row in rows(server.store, "to:lms"))
    body = json.loads(first.body)
    assert set(body) == {"type", "timestamp", "data"}
    assert body["type"] == "submission.completed"
    assert body["data"] == {
        "submission": submissions[0],
        "status": "completed",
        "link": f"http://localhost:8080/submissions/{submissions[0]}",
        "api": f"http://localhost:8080/api/v1/submissions/{submissions[0]}",
    }
    assert len(first.body) < 20_000


def test_a_receiver_that_took_nothing_for_two_days_is_paused_and_nothing_is_dead(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    graded(server)
    with receiver_server() as there:
        there.status = 503
        relay = Relay(server, (to(there.url),))
        for server.store.clock_offset_s in range(0, 10 * 86_400, 6 * 3600):
            relay.relay()
        assert "is paused" in caplog.text
        with server.store.read() as session:
            (standing,) = webhooks.list_receivers(session)
        assert standing.paused_at is not None
        assert (standing.waiting, standing.failures) == (1, len(there.posted))
        assert len(there.posted) < len(RETRIES_S) + 1
        graded(server, "s2")
        there.status = 200
        assert relay.relay() == 0
        moved = Relay(server, (to(f"{there.url}/new"),))  # another address begins anew
        with server.store.read() as session:
            assert not webhooks.is_paused(session, "lms", moved.receivers[0].mark)
        with server.store.write() as session:
            assert webhooks.resume_receiver(session, "lms", "test") == 2
        assert relay.relay() == 2
    with server.store.read() as session:
        (standing,) = webhooks.list_receivers(session)
    assert (standing.paused_at, standing.waiting, standing.failures) == (None, 0, 0)


def test_each_try_is_kept_without_its_signature_and_can_be_sent_again(server: Server) -> None:
    graded(server)
    with receiver_server() as there:
        there.status, there.says = 500, b"<b>no\0\xff\x1b[31m" + b"x" * 100_000
        relay = Relay(server, (to(f"{there.url}?key=hidden"),))
        relay.relay()
        there.status, there.says = 200, b"ok"
        server.store.clock_offset_s = 60
        assert relay.relay() == 1
        with server.store.write() as session:
            listed = webhooks.list_deliveries(session).items
            kept = [webhooks.load_delivery(session, line.id) for line in listed]
            assert [(one.status, one.error, one.attempt) for one in kept] == [
                (200, "", 2),
                (500, "answered 500", 1),
            ]
            assert (kept[0].answer, kept[1].answer[:8]) == ("ok", "<b>no \ufffd ")
            assert len(kept[1].answer) == webhooks.MAX_ANSWER
            assert json.loads(kept[0].body)["type"] == kept[0].type == "submission.completed"
            assert set(kept[0].headers) == {"webhook-id", "webhook-timestamp", "Content-Type", "User-Agent"}
            assert "hidden" not in kept[0].url
            assert [
                len(webhooks.list_deliveries(session, "lms", state).items) for state in ("taken", "failed")
            ] == [
                1,
                1,
            ]
            webhooks.replay_delivery(session, kept[0].id, "test")
        assert relay.relay() == 1
    assert len({posted.headers["webhook-id"] for posted in there.posted}) == 1
    assert len(there.posted) == 3


def test_a_test_message_is_sent_once_and_keeps_its_signature(server: Server) -> None:
    def ask() -> str:
        with server.store.write() as session:
            return webhooks.send_test(session, "lms", "grade.released", "s1", "test")

    def answer(key: str) -> webhooks.SentTest:
        with server.store.read() as session:
            return webhooks.load_test(session, "lms", key)

    shut = server.config.server.model_copy(update={"outside_allowed": ()})
    closed = replace(server, config=server.config.model_copy(update={"server": shut}))
    with receiver_server() as there:
        relay, key = Relay(server, (to(there.url),)), ask()
        assert answer(key).attempt is None
        assert relay.relay() == 1
        (posted,) = there.posted
        Webhook(NEW).verify(posted.body, posted.headers)
        assert json.loads(posted.body)["type"] == "grade.released"
        taken = answer(key).attempt
        assert taken is not None
        assert (taken.status, taken.error) == (204, "")
        assert taken.headers["webhook-signature"] == posted.headers["webhook-signature"]
        assert taken.message_id.startswith("msg_test_")
        # a failure is neither retried nor counted, and an address that is forbidden gets nothing
        there.status, refused = 503, ask()
        relay.relay()
        forbidden = ask()
        Relay(closed, (to(there.url),)).relay()
        server.store.clock_offset_s = 86_400
        assert relay.relay() == 0
        assert len(there.posted) == 2
        problems = [one.error for key in (refused, forbidden) if (one := answer(key).attempt)]
        assert problems[0] == "answered 503"
        assert "server.outside_allowed in config.toml" in problems[1]
        with server.store.read() as session:
            assert webhooks.list_receivers(session) == []


def test_a_receiver_inside_the_school_must_be_opened_in_config(server: Server) -> None:
    graded(server)
    shut = server.config.server.model_copy(update={"outside_allowed": ()})
    closed = replace(server, config=server.config.model_copy(update={"server": shut}))
    with receiver_server() as there:
        assert Relay(closed, (to(there.url),)).relay() == 0
        assert there.posted == []
        (row,) = rows(server.store, "to:lms")
        assert "server.outside_allowed in config.toml" in row.error
        server.store.clock_offset_s = 60
        assert Relay(server, (to(there.url),)).relay() == 1


def test_what_we_send_is_what_the_reference_library_verifies(server: Server) -> None:
    graded(server)
    with receiver_server() as there:
        assert Relay(server, (to(there.url),)).relay() == 1
    (posted,) = there.posted
    for key in (NEW, OLD):
        Webhook(key).verify(posted.body, posted.headers)


def test_every_receiver_is_told_once_and_a_slow_one_delays_no_other(
    on_both: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = on_both
    for number in range(3):
        graded(server, f"s{number}")
    monkeypatch.setattr("workers.server.delivery.webhooks.EVERY_S", 0.02)
    with receiver_server() as good, receiver_server() as slow:
        slow.status = 0
        relay = Relay(server, (to(slow.url, "slow"), to(good.url, "good")))
        others = [replace(relay, stop=relay.stop) for _ in range(2)]
        threads = [thread for one in (relay, *others) for thread in one.start()]
        deadline = time.monotonic() + 60
        while len(good.posted) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        relay.stop.set()
        assert len(slow.posted) <= 3
        slow.closing.set()
        for thread in threads:
            thread.join()
    assert len({posted.headers["webhook-id"] for posted in good.posted}) == len(good.posted) == 3


def fill_backlog(server: Server, count: int) -> None:
    """Events that nobody was told of yet."""
    with server.store.write() as session:
        for number in range(count):
            payload = {"type": "submission.completed", "submission": f"s{number}"}
            outbox.add(session, "event", f"completed:s{number}", payload)


def test_a_retry_does_not_wait_for_the_backlog_of_a_slow_receiver(
    on_both: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = on_both
    fill_backlog(server, 100)
    monkeypatch.setattr(delivery, "RETRIES_S", (0.2, 60.0))
    with receiver_server() as there, monkeypatch.context() as one_message:
        relay = Relay(server, (to(there.url),))
        there.status = 500
        one_message.setattr(delivery, "SEND_AT_ONCE", 1)
        assert relay.relay() == 0
        one_message.undo()
        there.status, there.delay_s = 204, 0.05
        assert relay.relay() == 100
    ids = [posted.headers["webhook-id"] for posted in there.posted]
    assert len(set(ids)) == len(ids) - 1 == 100
    # by then 8 at a time have had 0.25 s of 0.05 s each
    assert ids[1:].index(ids[0]) <= 8 * 6


def test_a_receiver_that_does_not_answer_is_asked_once_a_pass(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_backlog(server, 30)
    monkeypatch.setattr(delivery, "TIMEOUT_S", 0.2)
    with receiver_server() as there:
        relay = Relay(server, (to(there.url),))
        there.status = 0
        assert relay.relay() == relay.relay() == 0
        assert len(there.posted) == 2
        tries = [row.tries for row in rows(server.store, "to:lms")]
        assert sorted(tries) == [0] * 28 + [1] * 2
        there.status = 204
        monkeypatch.setattr(delivery, "TIMEOUT_S", 30.0)  # a late answer on a busy computer is one
        assert relay.relay() >= 28  # more where the retries of the two are due by then
    left = [row for row in rows(server.store, "to:lms") if row.done_at is None]
    assert len(left) <= 2
    assert all(row.tries == 1 for row in left), left


def test_what_is_in_flight_at_the_stop_is_written_down(server: Server) -> None:
    fill_backlog(server, 30)
    with receiver_server() as there:
        relay = Relay(server, (to(there.url),))
        relay.fan_out()
        there.delay_s = 0.1
        with ThreadPoolExecutor(1) as pool:
            passing = pool.submit(relay.relay)
            deadline = time.monotonic() + 60
            while len(there.posted) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            relay.stop.set()
            taken = passing.result()
    done = [row for row in rows(server.store, "to:lms") if row.done_at is not None]
    assert taken == len(done) == len(there.posted) < 30
    assert all(row.tries == (row.done_at is not None) for row in rows(server.store, "to:lms"))


@pytest.mark.parametrize("status", [302, 400, 503])
def test_a_refusal_is_tried_as_planned_and_then_dead(
    server: Server, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "PAUSE_AFTER", timedelta(days=365))
    graded(server)
    with receiver_server() as there:
        there.status = status
        relay, passed = Relay(server, (to(there.url),)), 0.0
        for wait in (*RETRIES_S, 10**6):
            assert relay.relay() == 0
            server.store.clock_offset_s = passed + wait - 1
            relay.relay()
            passed += wait + 1
            server.store.clock_offset_s = passed
    (row,) = rows(server.store, "to:lms")
    assert (row.done_at is not None, row.error, row.tries) == (True, f"answered {status}", 10)
    assert [posted.path for posted in there.posted] == ["/events"] * 10
    assert len({posted.headers["webhook-timestamp"] for posted in there.posted}) == 10


def test_410_ends_all_messages_to_that_address(server: Server) -> None:
    for number in range(3):
        graded(server, f"s{number}")
    with receiver_server() as there:
        there.status = 410
        relay = Relay(server, (to(there.url),))
        relay.relay()
        there.status = 200
        graded(server, "s9")
        relay.relay()
        assert len(there.posted) == 1
        assert {row.error for row in rows(server.store, "to:lms")} == {"answered 410"}
        moved = Relay(server, (to(f"{there.url}/new"),))
        graded(server, "s10")
        assert moved.relay() == 1


def test_an_event_that_nobody_wants_is_done(server: Server) -> None:
    graded(server)
    assert Relay(server).relay() == 0
    (event,) = rows(server.store, "event")
    assert (event.done_at is not None, event.error) == (True, "")


def test_secrets_and_addresses_are_checked_at_the_start(root: Path) -> None:
    stages = {"analysis": {"engine": "rules", "model": "m"}}

    def config(*listed: dict[str, str]) -> Config:
        machine = {"name": "m", "stages": stages}
        return parse({"server": {"event_receivers": list(listed)}, "machines": [machine]})

    good = {"name": "my-lms", "url": "https://lms.example/events"}
    key = "whsec_" + base64.b64encode(NEW).decode()
    secrets = event_secrets(config(good), {"GRADER_EVENTS_MY_LMS_SECRET": f"{key} {key}"})
    (made,) = receivers(config(good), secrets)
    assert (made.name, made.url, made.keys) == ("my-lms", good["url"], (NEW, NEW))
    assert "nnn" not in repr(made)
    with pytest.raises(ConfigError, match="set GRADER_EVENTS_MY_LMS_SECRET"):
        event_secrets(config(good), {})
    for short in ("whsec_c2hvcnQ=", "whsec_%", "whsec_é"):
        with pytest.raises(ConfigError, match="at least 24"):
            receivers(config(good), {"my-lms": (short,)})
    for url in ("https:///x", "ftp://a/", "http://a:b/", "http://a:99999/", "http://a b/", "http://a/ü"):
        with pytest.raises(ConfigError, match="event_receivers"):
            config({**good, "url": url})
    with pytest.raises(ConfigError, match="names must be unique"):
        config(good, good)
