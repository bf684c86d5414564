"""Recovery to a moment before a mistake, from a back-up of pgBackRest and the archived log.

`pytest -s` prints the figures of docs/how-to/administrators/postgresql.md; DRILL_MB sets the size.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from sqlalchemy import func, insert, select, text

from cli.doctor.finding import Bounds
from cli.doctor.replication import _look
from grading.store import Store, schema, tables
from grading.store.failover import SKIPPED_NUMBERS
from grading.store.reporting.replication import load_replication
from tests.faults.harness.postgres_pair import Node, create_database, postgres_folder, run
from tests.support.factories import add_assignment, submit

SIZE_MB = int(os.environ.get("DRILL_MB", "128"))
MB = 1024 * 1024


class Repository:
    """A repository of pgBackRest for one server."""

    def __init__(self, node: Node) -> None:
        self.node, self.file = node, node.folder / "pgbackrest.conf"
        lines = ["[global]", "compress-type=lz4", "start-fast=y", "process-max=2", "repo1-retention-full=2"]
        lines += [f"{key}-path={node.folder / key}" for key in ("repo1", "log", "lock", "spool")]
        lines += ["log-level-file=off", "[grader]", f"pg1-path={node.data}", f"pg1-port={node.port}"]
        lines += [f"pg1-socket-path={node.folder}", "pg1-user=grader", "pg1-database=postgres"]
        self.file.write_text("\n".join(lines))
        self.file.chmod(0o644)
        node.settings |= {
            "archive_mode": "on",
            "archive_command": f"'pgbackrest --config={self.file} --stanza=grader archive-push %p'",
            "restore_command": f"'pgbackrest --config={self.file} --stanza=grader archive-get %f \"%p\"'",
        }

    def __call__(self, *words: str) -> float:
        """Run pgBackRest; seconds that it took."""
        begun = time.monotonic()
        command = ("pgbackrest", f"--config={self.file}", "--stanza=grader", "--log-level-console=warn")
        run(*command, *words, environ={"PGPASSWORD": self.node.password})
        return time.monotonic() - begun


def timed(what: Callable[[], object]) -> float:
    begun = time.monotonic()
    what()
    return time.monotonic() - begun


def fill(store: Store) -> float:
    """Content that does not compress, as students' files; the size of the database in GB."""
    for number in range(SIZE_MB):
        with store.write() as session:
            row = {"sha256": f"{number:064d}", "size": MB, "data": os.urandom(MB)}
            session.execute(insert(tables.Blob), row)
    with store.read() as session:
        return session.execute(select(func.pg_database_size(func.current_database()))).scalar_one() / 1e9


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_dropped_course_comes_back() -> None:
    with postgres_folder() as folder:
        node = Node("db1", folder, secrets.token_hex(12))
        backup = Repository(node)
        try:
            node.make()
            node.start(wait=False)
            create_database(node)
            schema.upgrade(node.url)
            with closing(Store(node.url)) as store:
                _play(node, backup, store)
        finally:
            if node.process is not None:
                node.kill()


def _play(node: Node, backup: Repository, store: Store) -> None:
    backup("stanza-create")
    backup("check")
    gigabytes = fill(store)
    full_s = backup("--type=full", "backup")
    assignment = add_assignment(store)
    for number in range(20):
        submit(store, assignment, f"s{number}")
    moment = node.ask("SELECT clock_timestamp()::text")
    last = node.ask("SELECT max(id) FROM users")
    time.sleep(0.1)
    with store.write() as session:
        session.execute(text("drop table courses cascade"))
        session.execute(text("delete from submission_files"))
    node.ask("SELECT pg_switch_wal()")
    # the first pieces failed, before the repository was made
    node.until("SELECT last_archived_time > coalesce(last_failed_time, '-infinity') FROM pg_stat_archiver")
    increment_s = backup("--type=incr", "backup")
    node.stop()
    restored_s = backup("--delta", "--type=time", f"--target={moment}", "--target-action=promote", "restore")
    replayed_s = timed(lambda: (node.start(), node.until("SELECT NOT pg_is_in_recovery()")))
    store.engine.dispose()
    with store.read() as session:
        assert session.execute(select(func.count()).select_from(tables.Course)).scalar_one() == 1
        assert session.execute(select(func.count()).select_from(tables.Submission)).scalar_one() == 20
        assert session.execute(select(func.count()).select_from(tables.SubmissionFile)).scalar_one() == 20
        assert session.execute(text("select count(*) from database_histories")).scalar_one() == 2
    submit(store, assignment, "another")
    assert node.ask("SELECT max(id) FROM users") > last + SKIPPED_NUMBERS / 2
    print(
        f"\n{gigabytes:.2f} GB: full back-up {full_s:.1f} s, increment {increment_s:.1f} s; restore --delta "
        f"{restored_s:.1f} s, replay {replayed_s:.1f} s: {(restored_s + replayed_s) / gigabytes:.0f} s a GB"
    )
    _archive_fails(node, store)


def _archive_fails(node: Node, store: Store) -> None:
    """The doctor says so when the archive takes nothing more."""
    node.settings["archive_command"] = "'false'"
    node.stop()
    node.start()
    store.engine.dispose()
    node.ask("CREATE TABLE any_change ()")
    node.ask("SELECT pg_switch_wal()")
    node.until(
        "SELECT last_failed_time > last_archived_time OR last_archived_time IS NULL FROM pg_stat_archiver"
    )
    found = load_replication(store)
    assert found is not None
    assert [one.code for one in _look(Bounds(), found, {})] == ["archive_failing"]
