"""What kills a PostgreSQL with a replica silently is told before: by metrics, a page and doctor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from cli.doctor.finding import Bounds
from cli.doctor.replication import _look
from grading.store import schema
from grading.store.reporting.replication import BEHIND_BYTES, load_replication
from tests.faults.harness.postgres_pair import Pair, postgres_pair
from tests.integration.webapp import School
from tests.support.system import until

ARCHIVE = {"archive_mode": "on", "archive_command": "'test ! -e ../broken'"}
NOISE = "INSERT INTO noise SELECT md5(random()::text) FROM generate_series(1, 1000000)"
"""About 90 MB of log."""
WELL = {
    "grader_commits_blocked": 0,
    "grader_replicas_missing": 0,
    "grader_replication_slot_active": 1,
    "grader_archive_failing": 0,
}


@dataclass
class Seen:
    """A pair of servers, and an installation of which an operator sees what is told."""

    pair: Pair
    school: School
    client: FlaskClient

    def metrics(self) -> dict[str, float]:
        """Of one replica, its slot and the archive."""
        text = self.client.get("/metrics").get_data(as_text=True)
        families = text_string_to_metric_families(text)
        return {sample.name: sample.value for family in families for sample in family.samples}

    def page(self) -> str:
        """The overview of operations."""
        return str(self.client.get("/operations").get_data(as_text=True))

    def codes(self) -> set[str]:
        """What doctor finds wrong."""
        found = load_replication(self.school.store)
        assert found is not None
        return {one.code for one in _look(Bounds(), found, {}) if one.level != "ok"}

    def until(self, **wanted: float) -> None:
        """Wait until these are served."""
        until(lambda: wanted.items() <= self.metrics().items(), 120, str(wanted))

    def until_well(self) -> None:
        """Nothing is wrong, and nobody says so."""
        self.pair.until_streaming()
        self.until(**WELL)
        until(lambda: self.metrics()["grader_replica_lag_bytes"] < BEHIND_BYTES, 120, "the replica has all")
        assert not self.codes()
        assert "PostgreSQL cannot" not in self.page()
        assert "replica" not in self.page()


@contextmanager
def seen() -> Iterator[Seen]:
    with postgres_pair(ARCHIVE) as pair:
        schema.upgrade(pair.url)
        with closing(School(pair.url)) as school:
            found = Seen(pair, school, school.client("admin"))
            pair.primary.ask("CREATE TABLE noise (line text)")
            found.until_well()
            yield found


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_replica_that_is_away_or_behind_and_an_archive_that_fails_are_told() -> None:
    with seen() as found:
        pair, primary = found.pair, found.pair.primary
        pair.synchronous()
        pair.replica.kill()
        found.until(grader_commits_blocked=1, grader_replicas_missing=1, grader_replication_slot_active=0)
        assert found.codes() == {"replica_waited_for", "slot_keeps_log"}
        page = found.page()
        assert "Nothing can be stored: PostgreSQL waits for a synchronous replica" in page
        assert "A replica of PostgreSQL is not connected: db2." in page
        for setting in ("off", "local"):  # then no commit waits
            primary.ask(f"ALTER SYSTEM SET synchronous_commit = {setting}")
            primary.ask("SELECT pg_reload_conf()")
            found.until(grader_commits_blocked=0)
            assert found.codes() == {"slot_keeps_log"}
            primary.ask("ALTER SYSTEM RESET synchronous_commit")
            primary.ask("SELECT pg_reload_conf()")
            found.until(grader_commits_blocked=1)
        primary.ask("ALTER SYSTEM RESET synchronous_standby_names")
        primary.ask("SELECT pg_reload_conf()")
        found.until(grader_commits_blocked=0)

        primary.ask(NOISE)
        assert found.metrics()["grader_replication_slot_bytes"] > BEHIND_BYTES
        assert "grader_replica_lag_bytes" not in found.metrics()
        assert "Nothing can be stored" not in found.page()
        pair.replica.start()
        found.until_well()

        pair.replica.ask("SELECT pg_wal_replay_pause()")
        primary.ask(NOISE)
        until(lambda: found.metrics()["grader_replica_lag_bytes"] > BEHIND_BYTES, 120, "it is behind")
        assert found.codes() == {"replica_behind"}
        assert "A replica of PostgreSQL is behind: db2." in found.page()
        pair.replica.ask("SELECT pg_wal_replay_resume()")
        found.until_well()

        broken = primary.folder / "broken"
        broken.touch()
        primary.ask("SELECT pg_switch_wal()")
        found.until(grader_archive_failing=1)
        assert found.codes() == {"archive_failing"}
        assert "PostgreSQL cannot archive its log" in found.page()
        broken.unlink()
        primary.ask("INSERT INTO noise VALUES ('')")
        primary.ask(
            "SELECT pg_switch_wal()"
        )  # the archiver, which sleeps for a minute after three tries, wakes
        found.until_well()
