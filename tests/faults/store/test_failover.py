"""A PostgreSQL whose primary dies or is cut off: what was accepted is there, graded once, and goes on.

`pytest -s` prints the figures of docs/how-to/administrators/postgresql.md.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests

from grading.store.failover import SKIPPED_NUMBERS
from tests.faults.harness.cluster import Cluster, cluster
from tests.faults.harness.ledger import verdict
from tests.faults.harness.machines import MachineSpec
from tests.faults.harness.postgres_pair import Pair, postgres_pair
from tests.support.system import until

MACHINES = tuple(MachineSpec(name, slots=8, seconds=0.2) for name in ("m1", "m2"))
NOTICED_S = 5.0
"""So long a primary that is cut off is looked at before it is fenced."""
TOGETHER = 3
FAULTS = ("killed", "cut off") * 10


@dataclass
class HandIns:
    """People who submit one after the other, each until it is accepted."""

    running: Cluster
    accepted_at: list[float] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def keep_on(self, who: int) -> None:
        number = 0
        try:
            while not self.stop.is_set():
                self.ids.append(self.running.ledger.submit(f"s-{who}-{number}"))
                self.accepted_at.append(time.monotonic())
                number += 1
                self.stop.wait(0.05)
        except BaseException as error:
            self.failed.append(error)
            raise

    def until_more(self, count: int) -> None:
        before = len(self.ids)
        until(
            lambda: self.failed or len(self.ids) >= before + count,
            90,
            f"{count} more; {self.running.site.folder}",
        )
        assert not self.failed

    def first_after(self, moment: float) -> float:
        """Seconds from a moment to the next 2xx."""
        until(lambda: self.failed or self.accepted_at[-1] > moment, 90, "accepted again")
        assert not self.failed
        return min(at for at in self.accepted_at if at > moment) - moment


@contextmanager
def under_way(running: Cluster) -> Iterator[HandIns]:
    """Hand-ins that go on until the end of the context."""
    made = HandIns(running)
    people = [threading.Thread(target=made.keep_on, args=(who,)) for who in range(TOGETHER)]
    for one in people:
        one.start()
    try:
        yield made
    finally:
        made.stop.set()
        for one in people:
            one.join(120)


def strike(pair: Pair, hand_ins: HandIns, kind: str) -> tuple[float, float]:
    """Kill the primary or cut it off, fence it and promote the replica.

    Seconds to the next 2xx from the fault, and from the command.
    """
    hand_ins.until_more(15)
    fault = time.monotonic()
    if kind == "killed":
        pair.primary.kill()
    else:
        pair.primary.freeze()
        time.sleep(NOTICED_S)
    command = time.monotonic()
    pair.promote()
    promoted = time.monotonic()
    return promoted - fault + hand_ins.first_after(promoted), promoted - command + hand_ins.first_after(
        promoted
    )


def told(running: Cluster) -> str:
    """Logs of the parts, as far as something went wrong there."""
    lines = [line for log in running.site.folder.glob("*.log") for line in log.read_text().splitlines()]
    return "\n".join(line for line in lines if "Traceback" in line or " CRITICAL " in line)


def spread(seconds: Sequence[float]) -> str:
    """Median and worst of durations."""
    return f"{statistics.median(seconds):.1f} s (median), {max(seconds):.1f} s (worst)"


def play(folder: Path, kinds: Sequence[str], *, synchronous: bool) -> None:
    with postgres_pair() as pair, cluster(folder, MACHINES, pair.url) as running:
        times = []
        with under_way(running) as hand_ins:
            for kind in kinds:
                if synchronous:
                    pair.synchronous()
                else:
                    pair.until_streaming()
                times.append((kind, *strike(pair, hand_ins, kind)))
                pair.rejoin()
            hand_ins.until_more(15)
        if synchronous:
            found = running.until_all_end(180)
        else:
            until(lambda: not verdict(running.store, running.ledger).stuck, 180, "all end")
            found = verdict(running.store, running.ledger)
        how = "synchronous" if synchronous else "asynchronous"
        print(f"\n{how}: {found.row()}")
        for kind in sorted(set(kinds)):
            after_fault, after_command = zip(*(took for one, *took in times if one == kind), strict=True)
            print(
                f"  {kind} {len(after_fault)} times: accepted again {spread(after_fault)} after the fault, "
                f"{spread(after_command)} after the command"
            )
        assert not found.twice
        assert not found.unexpected
        assert not found.stuck
        assert not running.deaths
        assert not told(running)
        if synchronous:
            assert not found.lost


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_a_synchronous_replica_loses_nothing(tmp_path: Path) -> None:
    play(tmp_path, FAULTS, synchronous=True)


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_an_asynchronous_replica_loses_little_and_doubles_nothing(tmp_path: Path) -> None:
    play(tmp_path, FAULTS, synchronous=False)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_what_a_replica_had_not_got_is_lost_alone_and_redis_that_knows_more_does_no_harm(
    tmp_path: Path,
) -> None:
    """The replica is away while work goes on; then the primary dies and the replica is promoted as it is."""
    with postgres_pair() as pair, cluster(tmp_path, MACHINES, pair.url) as running:
        with under_way(running) as hand_ins:
            hand_ins.until_more(30)
            pair.until_streaming()
            pair.replica.kill()
            known = set(hand_ins.ids)
            hand_ins.until_more(40)
            last = pair.primary.ask("SELECT max(id) FROM users")
            lag = pair.primary.ask(
                "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) FROM pg_replication_slots"
            )
            pair.primary.kill()
            pair.replica.start()
            accepted = len(hand_ins.ids)
            pair.promote()
            hand_ins.until_more(30)
            first = pair.primary.ask("SELECT min(id) FROM users WHERE id > %s", last)
        until(lambda: not verdict(running.store, running.ledger).stuck, 180, "all end")
        found = verdict(running.store, running.ledger)
        print(f"\n{float(lag) / 1e6:.1f} MB of log behind: {found.row()}")
        assert found.lost
        assert not set(found.lost) & known
        assert len(found.lost) <= accepted - len(known) + TOGETHER
        assert first > last + SKIPPED_NUMBERS / 2, "a number was given to another person"
        for one in found.lost[:5]:
            answer = requests.get(
                f"{running.ledger.url}/api/v1/submissions/{one}",
                headers={"Authorization": f"Bearer {running.ledger.token}"},
                timeout=30,
            )
            assert answer.status_code == 404
        # who kept the work submits it again under the same key
        again = {student: one for student, one in running.ledger.accepted.items() if one in found.lost}
        running.submitted(list(again))
        after = running.until_all_end(180)
        print(f"submitted again: {after.row()}")
        for one in (found, after):
            assert not one.twice
            assert not one.unexpected
            assert not one.stuck
        assert not after.lost
        assert not running.deaths
        assert not told(running)
        ignored = (running.site.folder / "store.log").read_text().count("a result was ignored")
        print(f"{ignored} results of lost rounds ignored")
