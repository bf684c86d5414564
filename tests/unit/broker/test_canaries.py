"""When a worker that answers no canary ends itself, and when it must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from grading.broker.canaries import Waiting
from workers.celery_worker import Watch


@dataclass
class World:
    """A clock, a Redis with one canary, and a worker's slots."""

    moment: float = 0.0
    since: float | None = None
    """When the canary that waits was first sent."""
    sent: float = -1000.0
    away: bool = False
    busy: int = 0
    begun: int = 0
    works: bool = False
    """It takes other work all the time, as where the canary waits behind much of it."""
    paused: bool = False
    ended: list[float] = field(default_factory=list)

    def waiting(self, _queues: Sequence[str]) -> dict[str, Waiting]:
        if self.away:
            raise RedisConnectionError("away")
        waits = 0.0 if self.since is None else self.moment - self.since
        return {"machine.one": Waiting(waits, self.moment - self.sent)}

    def look_until(self, moment: float, watch: Watch) -> None:
        while self.moment < moment and not self.ended:
            self.moment += 5.0
            self.begun += self.works
            watch.look()

    def send(self) -> None:
        self.since = self.sent = self.moment


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def watch(world: World) -> Watch:
    return Watch(
        canaries=world,  # type: ignore[arg-type]
        queue="machine.one",
        slots=2,
        paused=lambda: world.paused,
        busy=lambda: world.busy,
        begun=lambda: world.begun,
        clock=lambda: world.moment,
        end=lambda: world.ended.append(world.moment),
    )


def test_a_worker_that_takes_no_canary_ends_within_a_minute(world: World, watch: Watch) -> None:
    world.look_until(100, watch)
    world.send()
    world.look_until(1000, watch)
    assert world.ended == [160]


@pytest.mark.parametrize("change", [{}, {"busy": 2}, {"paused": True}, {"away": True}, {"works": True}])
def test_it_goes_on_while_nothing_can_be_expected_of_it(
    world: World, watch: Watch, change: dict[str, object]
) -> None:
    """No canary was sent, all slots generate, it was drained or ends, Redis is away, other work is first."""
    world.look_until(10, watch)
    if change:
        world.send()
    vars(world).update(change)
    world.look_until(5000, watch)
    assert world.ended == []


def test_what_it_has_under_way_may_end_first(world: World, watch: Watch) -> None:
    world.busy = 1
    world.look_until(10, watch)
    world.send()
    world.look_until(400, watch)
    assert world.ended == []
    world.busy = 0
    world.look_until(1000, watch)
    assert world.ended == [405]


def test_work_that_never_ends_does_not_keep_it(world: World, watch: Watch) -> None:
    world.busy = 1
    world.look_until(10, watch)
    world.send()
    world.look_until(5000, watch)
    assert world.ended == [670]


def test_after_an_outage_it_has_time_to_connect_again(world: World, watch: Watch) -> None:
    world.look_until(10, watch)
    world.send()
    world.away = True
    world.look_until(300, watch)
    world.away = False
    world.look_until(1000, watch)
    assert world.ended == [350]  # 45 s after Redis answered for the first time


def test_a_canary_from_before_its_start_is_not_its_own(world: World) -> None:
    world.send()
    world.moment = 500.0
    late = Watch(
        canaries=world,  # type: ignore[arg-type]
        queue="machine.one",
        slots=2,
        busy=lambda: 0,
        begun=lambda: 0,
        clock=lambda: world.moment,
        end=lambda: world.ended.append(world.moment),
    )
    world.look_until(5000, late)
    assert world.ended == []
