"""Things are kept so long and no longer, by one of several sweepers; open work and unseen grades stay."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from grading.broker.token_use import USE, TokenUse
from grading.config.settings import Retention
from grading.domain.jobs import Tokens
from grading.domain.messages import Message
from grading.domain.permissions import Actor
from grading.store import schema
from grading.store.accounts import credentials, sessions, users
from grading.store.accounts.sign_in_attempts import Caller
from grading.store.audit import write_audit
from grading.store.database import now
from grading.store.grades import release
from grading.store.privacy import erasure, retention
from grading.store.submissions import class_uploads
from grading.store.tables import (
    Audit,
    Blob,
    ClassUpload,
    GatewayUse,
    GoldenSubmission,
    Grade,
    IdempotencyKey,
    InboundWebhook,
    OpenSession,
    Outbox,
    PeriodicTask,
    Round,
    Run,
    SignInAttempt,
    Submission,
)
from tests.support.aging import DAY_S, Fresh, Played, played
from tests.support.factories import add_assignment, submit
from tests.support.marked_student import planted
from tests.support.services import SqliteDatabases
from workers.server.housekeeping import DAILY, do_chores, store_use


@pytest.fixture
def system(fresh_database: Fresh, redis_url: str, root: Path) -> Iterator[Played]:
    with played(fresh_database(schema.upgrade), redis_url, root) as made:
        yield made


@pytest.fixture
def lite(sqlite_databases: SqliteDatabases, redis_url: str, root: Path) -> Iterator[Played]:
    """The same on SQLite only, where nothing depends on the database."""
    with played(sqlite_databases.fresh(schema.upgrade), redis_url, root) as made:
        yield made


def test_old_sessions_and_counters_of_wrong_passwords_go(system: Played) -> None:
    store = system.store
    with store.write() as session:
        sessions.create_session(session, users.create_user(session, "anna").id)
    assert credentials.verify_password(store, "anna", "wrong", Caller("192.0.2.1")) is None
    left = []
    for days in (0, 1, 30):
        system.pass_time(days * DAY_S)
        do_chores(system.server)
        with store.read() as session:
            left.append((session.query(SignInAttempt).count(), session.query(OpenSession).count()))
    assert left == [(2, 1), (0, 1), (0, 0)]


def test_the_use_of_tokens_is_stored_each_minute_and_kept_for_so_long(
    system: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis = system.server.dispatch.registry.redis
    counts, gone = TokenUse(redis), 999
    with system.store.write() as session:
        user = users.create_user(session, "ada")
        made = users.create_token(session, user.id, "tool", ["chat"], timedelta(days=1))
    stored = []
    for _ in range(3):
        for token in (made.id, gone):
            counts.charge(token, "org/a|b:1", Tokens(prompt=5))  # no output, as of embeddings
        system.sweeper.step()
        with system.store.read() as session:
            rows = session.query(GatewayUse).all()
            stored += [(row.token_id, row.model, row.requests, row.prompt_tokens) for row in rows]
        system.pass_time(40)
    assert stored == [(made.id, "org/a|b:1", 1, 5)] * 2 + [(made.id, "org/a|b:1", 3, 15)]
    assert not redis.keys(f"{USE}pending")
    counts.charge(made.id, "m" * 400, Tokens(prompt=5))
    with monkeypatch.context() as patch:
        patch.setattr(type(system.store), "write", None)
        store_use(system.server)  # it is not due, so nobody waits for its lock
    system.pass_time(80)
    system.sweeper.step()
    with system.store.read() as session:
        assert session.query(GatewayUse).count() == 2, "names that are too long do not stop the rest"
    with system.store.write() as session:
        assert not retention.delete_chunk(session, Retention(use_days=400))
        session.execute(update(GatewayUse).values(day=date(2020, 1, 1)))
        assert retention.delete_chunk(session, Retention(use_days=400)) == {"gateway use": 2}


def test_what_is_kept_long_enough_goes_and_nothing_else(system: Played) -> None:
    store = system.store
    open_, hidden = add_assignment(store, "sales", "at_once"), add_assignment(store, "basket")
    seen = submit(store, open_, "seen", source_text="seen <- 1")
    unreleased = submit(store, hidden, "unreleased")
    system.work_off()
    with store.write() as session:
        session.execute(update(Round).where(Round.id == seen.round_id).values(failure=Message()))
    under_way = submit(store, open_, "under way", source_text="u <- 1")
    system.pass_time(100 * DAY_S)
    young = submit(store, open_, "young", source_text="young <- 1")
    kept = Retention(submissions_days=50)
    with store.read() as session:
        assert retention.count_overdue(session, kept)["submissions"] == 1
    with store.write() as session:
        assert retention.delete_chunk(session, kept)["submissions"] == 1
        assert not retention.delete_chunk(session, kept)
    with store.read() as session:
        left = set(session.scalars(select(Submission.id)))
        assert left == {one.submission_id for one in (unreleased, under_way, young)}
        assert b"seen <- 1" not in session.scalars(select(Blob.data)).all()
    with store.write() as session:
        release.release_grade(session, unreleased.round_id, Actor(1, True))
        assert retention.delete_chunk(session, kept)["submissions"] == 1


def test_results_go_and_reports_stay(lite: Played) -> None:
    store = lite.store
    assignment = add_assignment(store, release="at_once")
    one = submit(store, assignment, "ada")
    hidden = submit(store, add_assignment(store, "basket"), "ada")
    lite.work_off()
    lite.pass_time(100 * DAY_S)
    with store.write() as session:
        golden = GoldenSubmission(submission_id=one.submission_id, assignment_id=assignment, at=now(session))
        session.add(golden)
        session.flush()
        assert retention.delete_chunk(session, Retention(results_days=30)).keys() == {"outbox"}
        session.delete(golden)
        session.flush()
        before = session.scalars(select(Grade.report).where(Grade.round_id == one.round_id)).one()
        assert retention.delete_chunk(session, Retention(results_days=30))["results"] == 1
        assert not retention.delete_chunk(session, Retention(results_days=30))
    with store.read() as session:
        assert session.scalars(select(Grade.report).where(Grade.round_id == one.round_id)).one() == before
        stripped, whole = (session.get_one(Round, x.round_id).prepared for x in (one, hidden))
        assert (stripped, whole is None) == (None, False)
        results = session.scalars(select(Run.result).where(Run.round_id == one.round_id)).all()
        assert [set(result or {}) for result in results] == [{"provenance"}] * 2


def test_messages_zips_and_audit_are_kept_so_many_days(lite: Played) -> None:
    store = lite.store
    assignment = add_assignment(store)
    with store.write() as session:
        users.ensure_administrator(session)
        class_uploads.create_class_upload(session, assignment, Actor(1, True), "class.zip", b"a class")
    planted(store, assignment)
    lite.work_off()
    with store.write() as session:
        write_audit(session, "cli", erasure.ACTION, "user:99")
    lite.pass_time(31 * DAY_S)
    kept = Retention(batches_days=30, messages_days=30, audit_days=30)
    with store.write() as session:
        done = retention.delete_chunk(session, kept)
        assert (done["class zips"], done["idempotency keys"], done["inbound webhooks"]) == (1, 1, 1)
        assert session.scalars(select(Audit.object)).all() == ["user:99"]
        for table in (ClassUpload, IdempotencyKey, InboundWebhook):
            assert session.execute(select(func.count()).select_from(table)).scalar_one() == 0
        # what was not sent yet waits on, however old
        assert "mail" in session.scalars(select(Outbox.kind)).all()
        assert session.execute(select(func.count()).select_from(Submission)).scalar_one() == 1


def test_the_daily_chore_is_done_once_a_day_by_one_of_several(
    system: Played, redis_url: str, root: Path
) -> None:
    store = system.store
    assignment = add_assignment(store)
    object.__setattr__(system.server.config, "retention", Retention(batches_days=1))
    with store.write() as session:
        users.ensure_administrator(session)
    do_chores(system.server)

    def upload() -> None:
        with store.write() as session:
            class_uploads.create_class_upload(session, assignment, Actor(1, True), "class.zip", b"a class")

    def left() -> int:
        with store.read() as session:
            return session.execute(select(func.count()).select_from(ClassUpload)).scalar_one()

    upload()
    with store.write() as session:
        session.execute(update(ClassUpload).values(created_at=now(session) - timedelta(days=2)))
    do_chores(system.server)
    assert left() == 1  # it was done today
    system.pass_time(1.01 * DAY_S)
    threads = [threading.Thread(target=do_chores, args=(system.server,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert left() == 0
    with store.read() as session:
        # there was something: the next chunk comes at once, not tomorrow
        assert session.get_one(PeriodicTask, DAILY).not_before < now(session) + timedelta(minutes=1)
