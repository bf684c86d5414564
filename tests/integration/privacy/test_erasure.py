"""Erasing a student, exporting what is held on them, and keeping things only so long, on both databases."""

from __future__ import annotations

import io
import json
import sqlite3
import stat
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Table, select
from sqlalchemy.exc import IntegrityError

from cli.main import grader
from grading.broker.erasure import withdraw
from grading.config.settings import Retention
from grading.documents import SubmittedFiles, UploadedFile
from grading.domain.document import Cell, Document
from grading.domain.errors import Conflict, Forbidden, NotFound
from grading.domain.learning_platforms import LEARNING_PLATFORMS
from grading.domain.permissions import Actor
from grading.store import schema
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.audit import write_audit
from grading.store.learning_platforms import all_tables, known_platforms
from grading.store.privacy import erasure, export, retention
from grading.store.privacy.erasure import find_student
from grading.store.submissions import class_uploads
from grading.store.submissions.intake import Idempotency, IncomingSubmission, accept_submission, add_round
from grading.store.tables import (
    Audit,
    Base,
    Blob,
    PeriodicTask,
    Round,
    Submission,
    User,
)
from tests.support.aging import DAY_S, Fresh, Played, played, redis_rows
from tests.support.factories import COURSE, add_assignment, submit
from tests.support.marked_student import CANARY, hits, other, planted
from tests.support.services import SqliteDatabases
from workers.server.housekeeping import DAILY, TIDY, do_chores

PERSONAL = {
    "assignments", "audit", "class_uploads", "blobs", "courses", "grades", "idempotency_keys",
    "identities", "periodic_tasks",
    "inbound_webhooks", "memberships", "open_sessions", "outbox", "prompts", "round_stages", "rounds",
    "rubric_versions", "tokens",
    "cached_executions", "runs", "submission_files", "submissions", "system_messages", "users", "drains",
    "changes", "dry_run_rounds", "dry_runs", "examples", "extensions", "group_members", "marks",
    "level_views",
    "regrade_requests", "reset_links", "saved_comments", "sign_in_attempts", "submission_members",
    "recovery_codes", "second_factors",
    "uploads", "upload_files", "prechecks", "mail_preferences", "change_markers",
    "sent_messages", "event_receivers", "webhook_secrets", "answers", "separate_answers",
    "comparisons", "similar_pairs", "rubric_items", "gateway_use", "calibrations",
    "mark_imports", "human_marks",
    "second_opinions", "stress_tests", "stress_variants", "questions",
    "golden_submissions", "model_trials", "parity_alarms", "shadow_runs",
    "stage_drains",
    "guarantee_samples", "guarantee_members", "guarantee_draws", "guarantee_candidates",
    "guarantee_releases", "database_histories", "unused_objects",
    "used_sign_on_tokens",
}  # fmt: skip
"""The core's tables that erasure was thought through for."""
PLATFORMS = tuple(f"grading.store.integrations.{name}." for name in LEARNING_PLATFORMS)


@pytest.fixture
def system(fresh_database: Fresh, redis_url: str, root: Path) -> Iterator[Played]:
    with played(fresh_database(schema.upgrade), redis_url, root) as made:
        yield made


@pytest.fixture
def lite(sqlite_databases: SqliteDatabases, redis_url: str, root: Path) -> Iterator[Played]:
    """The same on SQLite only, where nothing depends on the database."""
    with played(sqlite_databases.fresh(schema.upgrade), redis_url, root) as made:
        yield made


def test_every_table_was_thought_of() -> None:
    """Whoever adds a table to the core says here that erasure and export know of it."""
    assert set(all_tables().tables) - {table.name for table in tables_of_platforms()} == PERSONAL


def test_platforms_register_all_tables_of_users() -> None:
    registered = {
        table.__tablename__ for one in known_platforms() for table in (*one.personal, *one.transient)
    }
    with_users = {table.name for table in tables_of_platforms() if refers_to_users(table)}
    assert with_users == registered
    assert len(registered) > 5


def tables_of_platforms() -> list[Table]:
    known_platforms()
    found = (one for one in Base.registry.mappers if one.class_.__module__.startswith(PLATFORMS))
    return [one.local_table for one in found if isinstance(one.local_table, Table)]


def refers_to_users(table: Table) -> bool:
    return any(key.target_fullname == "users.id" for key in table.foreign_keys)


def test_nothing_of_an_erased_student_stays(system: Played, tmp_path: Path) -> None:
    store = system.store
    assignment = add_assignment(store, release="at_once")
    user_id = planted(store, assignment)
    bens = other(store, assignment)
    system.work_off()
    submit_canaries_again(system, assignment, user_id)
    redis: Any = system.server.dispatch.registry.redis
    with store.write() as session:
        student = find_student(session, f"{CANARY}-id")
        assert hits(store).keys() >= {
            "users",
            "identities",
            "submissions",
            "rounds",
            "outbox",
            "audit",
            "blobs",
            "cached_executions",
        }
        assert any(one in "\n".join(redis_rows(redis)) for one in student.runs)
    with store.write() as session:
        erased = erasure.erase_student(session, student, "test")
    assert erased.counts["submissions"] == 2
    assert withdraw(redis, (*erased.student.submissions, *erased.student.rounds, *erased.student.runs)) > 0
    left = "\n".join(redis_rows(redis))
    assert [one for one in (*student.submissions, *student.rounds, *student.runs) if one in left] == []
    assert hits(store) == {}
    with store.read() as session:
        user = session.get_one(User, user_id)
        assert (user.name, user.disabled, user.identities) == ("", True, [])
        details = session.scalars(
            select(Audit.detail).where(Audit.action.in_(("sign_in", "mail"))).order_by(Audit.id)
        ).all()
        assert details == [{"as": [f"user:{user_id}"], "x": "kept"}, {"text": f"to user:{user_id}, sent"}]
        files = session.scalars(select(Blob.data)).all()
        assert sorted(files) == [b"the data that all have", b"y <- 2"]
        assert session.scalars(select(Submission.id)).all() == [bens]
    if store.engine.dialect.name == "sqlite":
        path = Path(store.engine.url.database or "")
        assert CANARY.encode() in bytes_of(path)  # deleted rows stay in the file until it is rewritten
        erasure.compact_database(store)
        assert CANARY.encode() not in bytes_of(path)
    else:
        erasure.compact_database(store)


def submit_canaries_again(system: Played, assignment: int, user_id: int) -> None:
    """A second submission that is under way: its messages wait, one was taken and is not acknowledged."""
    submit_canaries_once_more = Idempotency(f"user:{user_id}", f"{CANARY} second", "0" * 64)
    with system.store.write() as session:
        cell = Cell(number=1, kind="code", source=f"{CANARY}2 <- 1", language="r", added=(1,))
        document = Document(path="again.R", kind="script", language="r", cells=(cell,))
        content = SubmittedFiles((UploadedFile("again.R", f"{CANARY}2 <- 1".encode()),), (document,), ())
        accept_submission(
            session,
            IncomingSubmission(assignment, user_id, "api", content, idempotency=submit_canaries_once_more),
        )
    system.pass_time()
    system.heartbeat()
    system.sweeper.step()
    redis: Any = system.server.dispatch.registry.redis
    row = redis.rpop("analysis")
    redis.hset("unacked", "tag", json.dumps([json.loads(row), "", "analysis"]))


def bytes_of(path: Path) -> bytes:
    files = [Path(f"{path}{suffix}") for suffix in ("", "-wal")]
    return b"".join(file.read_bytes() for file in files if file.exists())


def test_a_late_answer_for_erased_work_is_ignored_and_withdrawn(lite: Played) -> None:
    store = lite.store
    assignment = add_assignment(store)
    submit(store, assignment, "ada")
    lite.pass_time()
    lite.heartbeat()
    lite.sweeper.step()
    jobs = list(lite.messages())
    with store.write() as session:
        erasure.erase_student(session, find_student(session, "ada"), "test")
    from tests.support.factories import result
    from workers.server import record

    for job in jobs:
        answer = result(job["run_id"], job["round_id"], job["stage"])
        assert record.record(lite.server, [answer])[0].outcome == "unknown"
        redis: Any = lite.server.dispatch.registry.redis
        redis.set(f"celery-task-meta-{job['run_id']}", answer.model_dump_json())
    do_chores(lite.server)
    assert not [key for job in jobs for key in redis.scan_iter() if job["run_id"] in key]
    with store.read() as session:
        (chore,) = session.scalars(select(PeriodicTask.name).where(PeriodicTask.name.not_in([DAILY, TIDY])))
    lite.pass_time(3 * 3600)
    do_chores(lite.server)
    with store.read() as session:
        assert session.get(PeriodicTask, chore) is None


def test_errors_of_the_database_say_nothing_of_the_work(lite: Played) -> None:
    """They end up in logs."""
    with lite.store.write() as session:
        session.add(Blob(sha256="0" * 64, size=1, data=b"x"))
    with pytest.raises(IntegrityError) as caught, lite.store.write() as session:
        session.add(Blob(sha256="0" * 64, size=1, data=f"{CANARY} text".encode()))
    assert CANARY not in str(caught.value)


def test_who_is_meant(lite: Played) -> None:
    store = lite.store
    add_assignment(store)
    with store.write() as session:
        course = versions.find_or_create_course(session, COURSE).id
        one = users.find_or_create_student(session, "lms:a", "7", "A", "a@school.invalid", course).id
        users.find_or_create_student(session, "lms:b", "7", "B", "", course)
        staff = users.create_user(session, "ina")
        users.enrol(session, staff.id, course, "instructor")
    with store.read() as session:
        with pytest.raises(Conflict, match=f"user:{one}"):
            find_student(session, "7")
        assert find_student(session, f"user:{one}").user_id == one
        assert find_student(session, "A@school.invalid").user_id == one
        for unknown in ("8", "user:999", "user:99999999999999", "user:x", ""):
            with pytest.raises(NotFound):
                find_student(session, unknown)
        with pytest.raises(Forbidden, match="staff"):
            find_student(session, "ina")


def test_an_erased_student_submits_no_more_and_erasing_again_does_no_harm(lite: Played) -> None:
    store = lite.store
    assignment = add_assignment(store)
    submit(store, assignment, "ada")
    with store.write() as session:
        student = find_student(session, "ada")
        erasure.erase_student(session, student, "test")
    with pytest.raises(Forbidden), store.write() as session:
        accept_submission(
            session, IncomingSubmission(assignment, student.user_id, "api", SubmittedFiles((), (), ()))
        )
    with store.write() as session:
        again = erasure.erase_student(session, find_student(session, student.name), "test")
    assert not again.counts
    # the same person may come again, as somebody new
    submit(store, assignment, "ada")
    with store.read() as session:
        assert find_student(session, "ada").user_id != student.user_id


def test_words_about_an_erased_student_leave_the_audit_and_those_about_others_stay(lite: Played) -> None:
    """What was changed and why quotes the work, and tells of illness; that it was changed stays."""
    store = lite.store
    assignment = add_assignment(store)
    theirs, others = (submit(store, assignment, name).submission_id for name in ("ada", "ben"))
    words = {"from": {"text": "You wrote y <- 1."}, "to": {"text": "y", "points": 2.0}, "reason": "was ill"}
    with store.write() as session:
        student = find_student(session, "ada")
        for submission in (theirs, others):
            write_audit(
                session, "user:9", "grade.change", f"submission:{submission}", {"kind": "reason", **words}
            )
        for number in (student.user_id, 1_000_000):
            detail = {"student": number, "due": "2026-01-01", "reason": "was ill"}
            write_audit(session, "user:9", "extension.give", f"assignment:{assignment}", detail)
        erasure.erase_student(session, student, "test")
    with store.read() as session:
        kept = select(Audit.detail).where(Audit.actor == "user:9").order_by(Audit.id)
        first, second, third, fourth = session.scalars(kept).all()
    assert first == {"kind": "reason", "from": {}, "to": {"points": 2.0}}
    assert second == {"kind": "reason", **words}
    assert third == {"student": student.user_id, "due": "2026-01-01"}
    assert fourth["reason"] == "was ill"


def test_class_zips_of_the_course_go_with_an_erasure(lite: Played) -> None:
    store = lite.store
    assignment = add_assignment(store)
    submit(store, assignment, "ada")
    with store.write() as session:
        users.ensure_administrator(session)
        admin = users.find_user(session, "local", "admin")
        assert admin is not None
        class_uploads.create_class_upload(
            session, assignment, Actor(admin.id, True), "class.zip", b"a whole class"
        )
        assert (
            erasure.erase_student(session, find_student(session, "ada"), "test").counts["class_uploads"] == 1
        )
        assert session.scalars(select(Blob.data)).all() == []


def test_an_erasure_waits_for_a_submission_of_the_same_file(system: Played) -> None:
    """Whoever commits first: the file is there for whoever still needs it."""
    store = system.store
    assignment = add_assignment(store)
    submit(store, assignment, "ada")
    submit(store, assignment, "ben", source_text="z <- 9")
    started, go = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def erase() -> None:
        started.set()
        try:
            with store.write() as session:
                erasure.erase_student(session, find_student(session, "ada"), "test")
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)
        go.set()

    other_thread = threading.Thread(target=erase)
    with store.write() as session:
        ben = find_student(session, "ben")
        content = SubmittedFiles((UploadedFile("work.R", b"x <- 1"),), (), ())
        accept_submission(session, IncomingSubmission(assignment, ben.user_id, "api", content))
        session.flush()
        other_thread.start()
        assert started.wait(60)
        assert not go.wait(0.3)
    other_thread.join(30)
    assert failures == []
    with store.read() as session:
        assert sorted(session.scalars(select(Blob.data))) == [b"x <- 1", b"z <- 9"]


def test_a_regrade_at_the_same_time_is_erased_or_kept_whole(system: Played) -> None:
    """Whoever grades again holds the submission: erasure waits for it, retention finds work under way."""
    store = system.store
    assignment = add_assignment(store, release="at_once")
    for name in ("ada", "ben"):
        submit(store, assignment, name)
    system.work_off()
    system.pass_time(10 * DAY_S)

    def erase() -> None:
        with store.write() as session:
            erasure.erase_student(session, find_student(session, "ada"), "test")

    def retain() -> None:
        with store.write() as session:
            retention.delete_chunk(session, Retention(submissions_days=5))

    removers = [threading.Thread(target=erase), threading.Thread(target=retain)]
    with store.write() as session:
        for submission in session.scalars(select(Submission)).all():
            add_round(session, submission, submission.assignment, reason="regrade", priority="batch")
        session.flush()
        for remover in removers:
            remover.start()
            remover.join(0.2)
            assert remover.is_alive()
    for remover in removers:
        remover.join(30)
        assert not remover.is_alive()
    with store.read() as session:
        (left,) = session.scalars(select(Round).where(Round.current))
        ben = find_student(session, "ben").user_id
        assert (left.student_id, left.state) == (ben, "received")


def test_an_export_holds_every_canary_and_nothing_of_others(lite: Played) -> None:
    store = lite.store
    assignment = add_assignment(store, release="at_once")
    planted(store, assignment)
    other(store, assignment)
    lite.work_off()
    buffer = io.BytesIO()
    with store.read() as session:
        found = find_student(session, f"{CANARY}-id")
    counts = export.write_export(store, found, buffer, "test")
    with zipfile.ZipFile(buffer) as archive:
        names = archive.namelist()
        data = json.loads(archive.read("data.json"))
        assert archive.read(f"submissions/{COURSE}/sales/submission-1/{CANARY}.R").startswith(
            b"# zqkanari comment"
        )
        report = next(archive.read(name).decode() for name in names if name.startswith("reports/"))
    whole = json.dumps(data)
    texts = ("-id", " name", "@mail.invalid", " token", " key", " message", " payload", " note", " comment")
    for what in (*texts, " output"):
        assert f"{CANARY}{what}" in whole, what
    assert "who is another" not in whole
    assert "y <- 2" not in whole
    assert "password_hash" not in whole
    assert "20 of 100 points, released" in report
    held = {
        "users",
        "identities",
        "memberships",
        "tokens",
        "submissions",
        "submission_files",
        "rounds",
        "grades",
    }
    held |= {"grades", "round_stages", "runs", "idempotency_keys", "inbound_webhooks", "outbox", "audit"}
    assert counts.keys() >= held
    assert data["runs"][0]["result"]["output"]
    assert data["rounds"][0]["prepared"]["documents"]
    theirs = {
        table.name
        for table in Base.metadata.tables.values()
        if any(key.target_fullname in ("submissions.id", "rounds.id") for key in table.foreign_keys)
    }
    # of two students, and of hidden tests
    assert theirs - data.keys() == {"similar_pairs", "answers"}


@pytest.mark.parametrize(
    ("path", "within"),
    [("../../etc/x", "etc/x"), ("/a\\..\\b", "a/b"), ("C:\\x", "C_/x"), ("..", "file"), ("a/./b", "a/b")],
)
def test_paths_in_an_export_stay_in_their_folder(path: str, within: str) -> None:
    assert export._within(path) == within


def test_the_commands(
    sqlite_databases: SqliteDatabases,
    redis_url: str,
    tmp_path: Path,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = sqlite_databases.fresh(schema.upgrade)
    monkeypatch.setenv("GRADER_DATABASE_URL", url)
    monkeypatch.setenv("GRADER_REDIS_URL", redis_url)

    def run(*words: str, **other: Any) -> Any:
        return CliRunner().invoke(grader, ["--config", str(root / "config.toml"), *words], **other)

    with played(url, redis_url, root) as system:
        planted(system.store, add_assignment(system.store))
        file = tmp_path / "export.zip"
        assert run("export", f"{CANARY}-id", str(file)).exit_code == 0
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert run("export", f"{CANARY}-id", str(file)).exit_code == 2
        assert isinstance(run("export", "nobody", str(tmp_path / "x.zip")).exception, NotFound)
        assert [path.name for path in tmp_path.iterdir()] == ["export.zip"]
        assert "No data is older" in run("retention", "--dry-run").output
        assert "1 submissions" in run("erase", f"{CANARY}-id", "--dry-run").output
        assert run("erase", f"{CANARY}-id", input="n\n").exit_code == 1
        assert hits(system.store)
        away = monkeypatch.context()
        with away as patch:
            patch.setenv("GRADER_REDIS_URL", "redis://127.0.0.1:1/0")
            assert "Redis does not answer" in str(run("erase", f"{CANARY}-id", "--yes").exception)
        assert hits(system.store)
        done = run("erase", f"{CANARY}-id", "--yes")
        assert done.exit_code == 0, done.output
        assert "Earlier backups still contain" in done.output
        assert hits(system.store) == {}
        with sqlite3.connect(system.store.engine.url.database or "") as connection:
            assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        connection.close()
        assert CANARY.encode() not in bytes_of(Path(system.store.engine.url.database or ""))
