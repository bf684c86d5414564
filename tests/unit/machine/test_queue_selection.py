"""Which queues a worker's consumer reads: its own always, others as decided, counted at once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisAway

from grading.broker.heartbeats import Heartbeat, Look
from grading.config.machines import Machine, Placement
from grading.scheduling.cluster_view import Peer, SpeedProfile
from workers.machine.scheduling import queue_selection as module
from workers.machine.scheduling.queue_selection import (
    COMING_S,
    RETURN_S,
    MachineView,
    QueueOrder,
    QueueSelection,
)

STAGES = ("analysis", "feedback")
QUICK = {"alone_s": 10.0, "full_s": 20.0, "full": 2, "health": 1.0, "tokens": 100.0, "seen": 9.0}
MACHINE = Machine.model_validate(
    {"name": "one", "slots": 2, "stages": {s: {"engine": "rules", "model": "rules"} for s in STAGES}}
)
OWN = "machine.one"


def heartbeat(name: str, **other: Any) -> Heartbeat:
    placed = {stage: {"engine": "rules", "model": "rules"} for stage in STAGES}
    return Heartbeat(
        f"process of {name}", name, 2, 0, placed, speed_profiles=dict.fromkeys(STAGES, QUICK), **other
    )


@dataclass
class Played:
    """A machine and what it sees, played."""

    heartbeats: list[Heartbeat] = field(default_factory=list)
    lengths: dict[str, int] = field(default_factory=dict)
    hand: dict[str, int] = field(default_factory=dict)
    now: float = 0.0
    slots: int = 2
    able: tuple[str, ...] = STAGES
    expected: dict[str, float] = field(default_factory=dict)

    def listening(self) -> QueueSelection:
        """The decider, after one look."""
        profiles = {stage: SpeedProfile(**QUICK) for stage in STAGES}  # type: ignore[arg-type]
        here = MachineView(
            MACHINE,
            STAGES,
            look=lambda _names: Look(self.heartbeats, self.lengths, {}, {}),
            hand=lambda: self.hand,
            peer=lambda: Peer("one", self.slots, STAGES, speed_profiles=profiles),
            expect=self.expected.update,
            slots=lambda: self.slots,
            able=lambda: self.able,
        )
        made = QueueSelection(here, clock=lambda: self.now)
        made.see()
        return made


def test_its_own_queue_is_read_whatever_is_decided() -> None:
    played = Played(lengths={"analysis": 5})
    found = played.listening()
    assert found.queues()[:2] == [OWN, "analysis"]
    found.admit(False)  # drained
    assert (found.queues(), found.chosen) == ([OWN], [])
    found.admit(True)
    played.now, played.hand = RETURN_S, {"analysis": 2}
    assert found.queues() == [OWN]  # full; a canary is still answered


def test_at_each_look_it_hears_how_long_answers_are_elsewhere() -> None:
    long = {stage: {**QUICK, "tokens": 700.0, "seen": 9.0} for stage in STAGES}
    played = Played(heartbeats=[replace(heartbeat("two"), speed_profiles=long)])
    played.listening()
    assert played.expected == dict.fromkeys(STAGES, 700.0)


def test_work_that_comes_in_a_burst_is_looked_at_before_a_batch_is_full_of_it() -> None:
    """With what was seen before it came, a machine took of all stages whatever came first."""
    played = Played(slots=16)
    found = played.listening()
    looked: list[int] = []
    found.changed = lambda: looked.append(len(looked))  # type: ignore[method-assign]
    found.took("analysis")
    assert looked == []
    for _ in range(5):
        found.took("analysis")
    assert looked == [0]


def test_a_machine_that_was_taken_in_again_hears_of_the_others_first() -> None:
    """All are taken in together after a maintenance: one that believes itself alone takes the wrong work."""
    played = Played(lengths={"analysis": 5})
    found = played.listening()
    found.admit(False)
    played.now = 100.0
    found.admit(True)
    played.now += RETURN_S - 0.1
    assert (found.queues(), found.chosen) == ([OWN], [])
    found.admit(True)  # said once more: the time runs on
    played.now += 0.2
    assert "analysis" in found.queues()


def test_a_spare_that_has_just_started_leaves_work_to_machines_it_may_not_know_yet() -> None:
    played = Played(lengths={"analysis": 5})
    found = played.listening()
    spare = MACHINE.model_copy(update={"role": "spare", "joins_after_s": 2.0})
    found.here = replace(found.here, machine=spare)
    assert (found.queues(), found.chosen) == ([OWN], [])
    played.now = 2.0
    assert "analysis" in found.queues()


def test_what_was_taken_counts_before_it_begins() -> None:
    played = Played(lengths={"analysis": 9})
    found = played.listening()
    for _ in range(2):
        assert "analysis" in found.queues()
        found.took("analysis")
    assert found.queues() == [OWN]
    played.hand = {"analysis": 1}
    found.begun("analysis")
    assert found.queues() == [OWN]
    played.hand = {}
    played.now = COMING_S + 1  # the other was thrown away where it arrived: it never begins
    assert "analysis" in found.queues()


def test_a_message_that_is_thrown_away_costs_no_slot() -> None:
    played = Played(lengths={"analysis": 9}, slots=1)
    cycle = QueueOrder(played.listening())
    cycle.update([OWN, "analysis"])
    cycle.rotate("analysis")
    assert cycle.consume(2) == [OWN]
    cycle.thrown_away()
    assert cycle.consume(2) == [OWN, "analysis"]


def test_what_was_taken_waits_no_more() -> None:
    played = Played(lengths={"analysis": 1, "feedback": 1})
    found = played.listening()
    found.took("analysis")
    assert found.view().waiting["analysis", "interactive"] == 0
    found.see()
    assert found.view().waiting["analysis", "interactive"] == 1  # Redis says so


def test_the_slots_it_takes_at_once_bound_it() -> None:
    played = Played(lengths={"analysis": 9}, slots=1, hand={"analysis": 1})
    assert played.listening().queues() == [OWN]


def test_an_engine_whose_slots_are_in_use_gets_no_more_and_the_others_do() -> None:
    played = Played(lengths={"analysis": 9, "feedback": 9}, slots=8)
    found = played.listening()
    ports = {name: {"kind": "openai", "slots": 2} for name in ("spark_a", "spark_b")}
    models = {"analysis": ("spark_a", "q"), "feedback": ("spark_b", "g")}
    places = {stage: {"engine": engine, "model": model} for stage, (engine, model) in models.items()}
    machine = Machine.model_validate({"name": "one", "slots": 8, "engines": ports, "stages": places})
    found.here = replace(found.here, machine=machine)
    assert found.queues()[1] == "analysis"
    played.hand = {"analysis": 2, "feedback": 1}
    assert found.queues()[1:] == ["feedback", "feedback.batch"]
    played.hand = {"analysis": 2, "feedback": 2}
    assert found.queues() == [OWN]


def test_a_circuit_that_opens_counts_at_once() -> None:
    played = Played(lengths={"analysis": 9, "feedback": 1})
    found = played.listening()
    played.able = ("feedback",)
    assert found.queues()[1:] == ["feedback", "feedback.batch"]
    played.able = ()
    assert found.queues() == [OWN]


def test_speeds_are_put_together_once_a_look_and_not_at_each_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll stands in the way of a submission that has just come."""
    found = Played([heartbeat("two")], {"analysis": 9}).listening()
    monkeypatch.setattr(module, "with_guesses", lambda _peers: {}["at a poll"])
    assert "analysis" in found.queues()


def test_dead_drained_and_broken_machines_are_not_waited_for() -> None:
    slow = {"alone_s": 1.0, "full_s": 2.0, "full": 2}
    fast = heartbeat("two", running={})
    played = Played(lengths={"analysis": 1})
    for other in (
        replace(fast, age_s=60.0, speed_profiles=dict.fromkeys(STAGES, slow)),
        replace(fast, drained=True, speed_profiles=dict.fromkeys(STAGES, slow)),
        replace(fast, circuits={"rules": {"state": "open"}}, speed_profiles=dict.fromkeys(STAGES, slow)),
    ):
        played.heartbeats = [other]
        assert "analysis" in played.listening().queues()
    played.heartbeats = [replace(fast, speed_profiles=dict.fromkeys(STAGES, slow))]
    assert "analysis" not in played.listening().queues()  # two is ten times as fast and free


def test_what_is_left_to_a_faster_one_that_does_not_take_it_is_taken() -> None:
    slow = {"alone_s": 1.0, "full_s": 2.0, "full": 2}
    played = Played(heartbeats=[heartbeat("two")], lengths={"analysis": 1})
    played.heartbeats = [replace(played.heartbeats[0], speed_profiles=dict.fromkeys(STAGES, slow))]
    found = played.listening()
    assert "analysis" not in found.queues()
    played.now = 60.0
    assert "analysis" in found.queues()


def test_nothing_that_fails_in_deciding_stops_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Played().listening()
    cycle = QueueOrder(found)
    cycle.update([OWN, "analysis", "feedback"])
    monkeypatch.setattr(module, "decide", lambda _view: {}["broken"])
    assert cycle.consume(3) == [OWN, "analysis", "feedback"]


def test_only_queues_of_the_consumer_are_read() -> None:
    cycle = QueueOrder(Played(lengths={"analysis": 3}).listening())
    cycle.update([OWN])
    assert cycle.consume(1) == [OWN]


def test_without_redis_what_was_seen_last_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    looks = 0
    stop = threading.Event()

    def look(_names: object) -> Look:
        nonlocal looks
        looks += 1
        if looks == 1:
            return Look((), {"analysis": 4}, {}, {})
        stop.set()
        raise RedisAway("away")

    profiles: Mapping[str, SpeedProfile] = {stage: SpeedProfile(**QUICK) for stage in STAGES}  # type: ignore[arg-type]
    me = Peer("one", 2, STAGES, speed_profiles=profiles)
    found = QueueSelection(
        MachineView(MACHINE, STAGES, look, dict, lambda: me, dict, lambda: 2, lambda: STAGES)
    )
    found.changed()
    thread = threading.Thread(target=found.until_stopped, args=(stop,))
    thread.start()
    thread.join(60)
    assert looks == 2
    assert found.view().waiting["analysis", "interactive"] == 4


def test_gateway_requests_come_in_only_where_no_grading_waits_and_a_slot_stays_free() -> None:
    played = Played()
    found = played.listening()
    found.here = replace(
        found.here, gateway_requests={"chat.m": MACHINE.stages["analysis"]}, most_gateway_requests=1
    )
    assert found.queues()[-1] == "chat.m"
    played.hand = {"analysis": 1}
    assert "chat.m" not in found.queues()
    played.hand = {}
    found.here = replace(found.here, most_gateway_requests=2, gateway_requests_in_hand=lambda: 1)
    assert "chat.m" not in found.queues()  # one of two slots is a gateway request's
    found.here = replace(found.here, gateway_requests_in_hand=lambda: 0)
    played.lengths = {"feedback": 1}
    found.see()
    assert "chat.m" not in found.queues()


def test_beside_runs_gateway_requests_come_in_only_for_their_model() -> None:
    """Another one might have to take its place in the engine, and the runs would wait for both to load."""
    played = Played(slots=8)
    found = played.listening()
    models = {stage: Placement(engine="ollama", model=stage) for stage in STAGES}
    machine = MACHINE.model_copy(update={"slots": 8, "stages": models})
    chats = {f"chat.{stage}": models[stage] for stage in STAGES}
    found.here = replace(found.here, machine=machine, gateway_requests=chats, most_gateway_requests=2)
    assert set(chats) < set(found.queues())
    played.hand = {"analysis": 1}
    assert set(chats) & set(found.queues()) == {"chat.analysis"}
    played.hand = {"analysis": 1, "feedback": 1}
    assert set(chats) < set(found.queues())


def test_what_is_thrown_away_counts_once_and_only_where_it_came_from() -> None:
    played = Played(lengths={"analysis": 9})
    found = played.listening()
    cycles = [QueueOrder(found), QueueOrder(found)]  # each channel has its own
    for cycle in cycles:
        cycle.update([OWN, "analysis"])
    cycles[0].rotate("analysis")
    cycles[0].rotate("analysis")
    for cycle in cycles * 2:
        cycle.thrown_away()  # the transport asks all of them
    assert found.view().peers["one"].busy == 1
    cycles[0].rotate(OWN)
    cycles[0].thrown_away()  # what was handed on by name never counted
    assert found.view().peers["one"].busy == 1


def test_the_last_word_of_a_machine_counts_when_an_earlier_process_was_killed() -> None:
    killed = replace(heartbeat("two", running={"analysis": 2}), process="killed", age_s=8.0, busy=2)
    now = replace(heartbeat("two"), age_s=1.0)
    for heartbeats in ([killed, now], [now, killed]):
        assert Played(heartbeats=heartbeats).listening().view().peers["two"].busy == 0


def test_a_busy_machine_of_an_earlier_version_is_no_free_one() -> None:
    other = replace(heartbeat("two"), busy=2, speed_profiles={})
    assert Played(heartbeats=[other]).listening().view().peers["two"].free == 0
    assert Played(heartbeats=[replace(other, busy=0)]).listening().view().peers["two"].free == 2
