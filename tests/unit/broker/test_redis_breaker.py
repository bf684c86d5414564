"""What does not answer is not asked again at once, and by one caller only."""

from __future__ import annotations

from dataclasses import dataclass

from grading.broker.dispatch import MAX_OPEN_S, Breaker


@dataclass
class Clock:
    at: float = 100.0

    def __call__(self) -> float:
        return self.at


def test_closed_while_answers_come() -> None:
    breaker = Breaker(Clock())
    for _ in range(3):
        assert breaker.admits()
        breaker.succeeded()


def test_open_after_a_failure_then_one_tries() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    assert breaker.admits()
    breaker.failed(4.0)
    clock.at += 3.9
    assert not breaker.admits()
    clock.at += 0.2
    assert breaker.admits()
    assert not breaker.admits()  # somebody is trying
    breaker.failed(0.0)
    clock.at += 1.1
    assert breaker.admits()
    breaker.succeeded()
    assert breaker.admits()
    assert breaker.admits()


def test_nothing_is_given_up_for_long() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    breaker.failed(3600.0)
    clock.at += MAX_OPEN_S
    assert breaker.admits()
