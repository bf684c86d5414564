"""Back-up and restore on both databases: consistent while others write, whole or refused, never half."""

from __future__ import annotations

import json
import resource
import secrets
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import func, select

from cli.main import grader
from grading.domain.errors import Conflict
from grading.domain.stages import STAGES
from grading.store import Store, schema
from grading.store.privacy import backup, erasure
from grading.store.privacy.backup import BackupDamaged, BackupFailed, Manifest
from grading.store.privacy.erasure import find_student
from grading.store.reporting.operations import last_backup_age_s
from grading.store.tables import Audit, Base, Grade, Round, Submission, SubmissionFile, User
from tests.support.aging import Fresh, Played, everything, played
from tests.support.factories import add_assignment, submit
from tests.support.services import SqliteDatabases
from tests.support.system import until

CONFIG = """
[[machines]]
name = "dgx-spark-1"
[machines.stages]
analysis = { engine = "rules", model = "rules" }
feedback = { engine = "rules", model = "rules" }
"""


@pytest.fixture
def system(fresh_database: Fresh, redis_url: str, root: Path) -> Iterator[Played]:
    with played(fresh_database(schema.upgrade), redis_url, root) as made:
        yield made


@pytest.fixture
def store(sqlite_databases: SqliteDatabases) -> Iterator[Store]:
    made = Store(sqlite_databases.fresh(schema.upgrade))
    yield made
    made.close()
    sqlite_databases.drop(made.url)


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = Store(url)
    try:
        yield store
    finally:
        store.close()


def count(store: Store, table: type[Base]) -> int:
    with store.read() as session:
        return session.execute(select(func.count()).select_from(table)).scalar_one()


def test_a_backup_taken_while_others_write_is_one_moment(
    system: Played, fresh_database: Fresh, tmp_path: Path
) -> None:
    assignment = add_assignment(system.store, release="at_once")
    for number in range(2):
        submit(system.store, assignment, f"s-{number}", source_text=f"x <- {number}")
    system.work_off()
    before, stop, made = count(system.store, Submission), threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            made.append(submit(system.store, assignment, "busy", source_text=secrets.token_hex(2000)))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until(lambda: bool(made), 60, "somebody writes")
        manifest = backup.write_backup(system.store, tmp_path / "one.zip")
    finally:
        stop.set()
        writer.join()
    assert made
    assert before <= manifest.counts["submissions"] <= before + len(made)
    assert (manifest.revision, manifest.counts["grades"]) == (schema.newest_revision(), 2)
    assert stat.S_IMODE((tmp_path / "one.zip").stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / "one.zip"]

    url = fresh_database(None)
    assert backup.restore_backup(url, tmp_path / "one.zip", replace=False, safety=tmp_path) == (
        manifest,
        None,
    )
    now = everything(system.store)
    with opened(url) as restored:
        for name, rows in everything(restored, "audit", "periodic_tasks").items():
            assert set(rows) <= set(now[name]), name
        counted = {"submissions": Submission, "grades": Grade, "files": SubmissionFile}
        assert {name: count(restored, table) for name, table in counted.items()} == manifest.counts
        # each submission is there with all that was written with it
        assert count(restored, SubmissionFile) == count(restored, Round) == count(restored, Submission)


def test_what_comes_back_is_what_was_there(system: Played, fresh_database: Fresh, tmp_path: Path) -> None:
    assignment = add_assignment(system.store)
    submit(system.store, assignment, "ada")
    system.work_off()
    before = everything(system.store)
    file, url = tmp_path / "one.zip", fresh_database(schema.upgrade)
    backup.write_backup(system.store, file)
    backup.restore_backup(url, file, replace=False, safety=tmp_path)  # tables without rows are no hindrance
    with opened(url) as restored:
        assert everything(restored, "audit") == {k: v for k, v in before.items() if k != "audit"}
        with restored.read() as session:
            last = session.scalars(select(Audit).order_by(Audit.id.desc()).limit(1)).one()
            # that it came from one shows that there is one, though nobody told this database
            assert last_backup_age_s(session) == pytest.approx(0, abs=60)
        assert (last.action, last.object) == ("database.restore", "database")
        # ids go on where they were
        submit(restored, assignment, "ben")
    with system.store.read() as session:
        assert (
            session.scalars(select(Audit.action).order_by(Audit.id.desc()).limit(1)).one()
            == "database.backup"
        )


def test_replacing_saves_what_was_there_and_erases_again(
    system: Played, fresh_database: Fresh, tmp_path: Path
) -> None:
    assignment = add_assignment(system.store)
    for name in ("ada", "ben"):
        submit(system.store, assignment, name, source_text=f"{name} <- 1")
    file = tmp_path / "one.zip"
    backup.write_backup(system.store, file)
    late = submit(system.store, assignment, "late", source_text="late <- 1")
    for name in ("ada", "late"):
        with system.store.write() as session:
            erasure.erase_student(session, find_student(session, name), "test")
    url = system.store.url
    with pytest.raises(Conflict, match="in use"):
        backup.restore_backup(url, file, replace=True, safety=tmp_path)
    system.store.close()
    with pytest.raises(Conflict, match="--replace"):
        backup.restore_backup(url, file, replace=False, safety=tmp_path)
    assert list(tmp_path.iterdir()) == [file]
    _, saved = backup.restore_backup(url, file, replace=True, safety=tmp_path / "safe")
    assert saved is not None
    assert backup.verify_backup(saved).counts["submissions"] == 1
    with opened(url) as restored, restored.read() as session:
        assert session.scalars(
            select(User.name).join(Submission, Submission.student_id == User.id)
        ).all() == ["ben"]
        assert session.get(Submission, late.submission_id) is None


def test_work_under_way_at_the_time_of_an_older_backup_is_done_beside_messages_of_later(
    system: Played, fresh_database: Fresh, redis_url: str, root: Path, tmp_path: Path
) -> None:
    assignment = add_assignment(system.store, release="at_once")
    running = submit(system.store, assignment, "running")
    system.heartbeat()
    system.pass_time()
    system.sweeper.step()
    assert len(list(system.messages())) == 2  # taken, and never answered
    queued = submit(system.store, assignment, "queued")
    received = submit(system.store, assignment, "received")
    backup.write_backup(system.store, tmp_path / "one.zip")

    # the future of this back-up: all three go on, a fourth comes, and Redis is full of their messages
    later = submit(system.store, assignment, "later")
    system.pass_time()
    system.sweeper.step()
    url = fresh_database(None)
    backup.restore_backup(url, tmp_path / "one.zip", replace=False, safety=tmp_path)
    with played(url, redis_url, root) as after:
        outcomes = after.work_off()
        assert outcomes["unknown"] >= 2
        assert outcomes["accepted"] == 3 * sum(row.always for row in STAGES.values())
        with after.store.read() as session:
            grades = session.scalars(select(Grade.round_id)).all()
            assert session.get(Round, later.round_id) is None
        assert sorted(grades) == sorted(one.round_id for one in (running, queued, received))


@pytest.fixture
def archive(store: Store, tmp_path: Path) -> Path:
    submit(store, add_assignment(store), "ada", source_text=secrets.token_hex(20_000))
    backup.write_backup(store, tmp_path / "one.zip")
    return tmp_path / "one.zip"


def rewritten(archive: Path, **changes: Any) -> Path:
    """The archive with another manifest."""
    path = archive.with_name("other.zip")
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w") as new:
        manifest = json.loads(old.read("manifest.json"))
        new.writestr("database", old.read("database"))
        new.writestr("manifest.json", json.dumps({**manifest, **changes}))
    return path


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "one byte": flip,
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "no zip": lambda path: path.write_text("a text"),
    "missing": lambda path: path.unlink(),
    "another checksum": lambda path: rewritten(path, sha256="0" * 64).replace(path),
    "less than it says": lambda path: rewritten(path, size=10**9).replace(path),
    "more than it says": lambda path: rewritten(path, size=10).replace(path),
    "no version": lambda path: rewritten(path, format=2).replace(path),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_archive_is_refused(damage: str, archive: Path, tmp_path: Path) -> None:
    assert backup.verify_backup(archive).counts["submissions"] == 1
    DAMAGES[damage](archive)
    with pytest.raises(BackupDamaged):
        backup.verify_backup(archive)
    with pytest.raises(BackupDamaged):
        backup.restore_backup(f"sqlite:///{tmp_path / 'new.db'}", archive, replace=False, safety=tmp_path)
    assert not (tmp_path / "new.db").exists()


def test_backups_of_other_versions_and_databases_are_refused(archive: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    changes = (
        ({"revision": "9999"}, "another version .*9999"),
        ({"kind": "postgresql"}, "configured"),
    )
    for change, sentence in changes:
        with pytest.raises(Conflict, match=sentence):
            backup.restore_backup(url, rewritten(archive, **change), replace=False, safety=tmp_path)
        assert not (tmp_path / "new.db").exists()


def test_a_database_that_is_away_is_told(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(schema.DatabaseAway, match="does not answer"):
        backup.restore_backup(
            "postgresql://grader:secret@127.0.0.1:1/grader",
            rewritten(archive, kind="postgresql"),
            replace=False,
            safety=tmp_path,
        )


def test_a_full_disk_leaves_nothing_half(system: Played, tmp_path: Path) -> None:
    submit(system.store, add_assignment(system.store), "ada", source_text=secrets.token_hex(400_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))  # files may not grow, as on a full disk
    try:
        with pytest.raises(BackupFailed) as caught:
            backup.write_backup(system.store, tmp_path / "one.zip")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.message.endswith(".")
    assert list(tmp_path.iterdir()) == []


def test_the_commands(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(store, add_assignment(store), "ada")
    (tmp_path / "config.toml").write_text(CONFIG)

    def run(url: str, *words: str) -> Any:
        monkeypatch.setenv("GRADER_DATABASE_URL", url)
        return CliRunner().invoke(grader, ["--config", str(tmp_path / "config.toml"), *words])

    folder = tmp_path / "kept"
    for _ in range(3):
        assert run(store.url, "backup", "--to-folder", str(folder), "--keep", "2").exit_code == 0
    made = sorted(folder.iterdir())
    assert len(made) == 2
    newest = str(made[-1])
    assert "1 submissions" in run(store.url, "backup", "--verify", newest).output
    assert isinstance(run(store.url, "backup", newest).exception, Conflict)
    assert run(store.url, "backup", newest, "--to-folder", "x").exit_code == 2
    url = f"sqlite:///{tmp_path / 'new.db'}"
    assert "Interrupted runs are dispatched again" in run(url, "restore", newest).output
    assert isinstance(run(url, "restore", newest).exception, Conflict)
    assert "The replaced data is in" in run(url, "restore", newest, "--replace").output
    with zipfile.ZipFile(newest) as archive:
        assert Manifest.model_validate_json(archive.read("manifest.json")).kind == "sqlite"
