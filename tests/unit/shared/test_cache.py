"""What is remembered: bounded in weight and age, the longest unused goes first."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

from grading.shared import cache as module
from grading.shared.cache import BoundedCache, mark


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def test_a_value_is_made_once_and_found_again() -> None:
    kept: BoundedCache[str] = BoundedCache(10)
    assert kept.find("a") is None
    assert [kept.get("a", 1, lambda text=text: text) for text in ("first", "second")] == ["first", "first"]
    assert kept.find("a") == "first"
    assert kept.find("b") is None


def test_what_was_not_used_for_longest_goes_first() -> None:
    kept: BoundedCache[str] = BoundedCache(3)
    for key in "abc":
        kept.put(key, 1, key)
    assert kept.find("a") == "a"  # used, so that b is the next to go
    kept.put("d", 1, "d")
    assert [kept.find(key) for key in "abcd"] == ["a", None, "c", "d"]
    kept.put("e", 2, "e")
    assert [kept.find(key) for key in "acde"] == [None, None, "d", "e"]


def test_all_together_are_never_heavier_than_allowed() -> None:
    kept: BoundedCache[int] = BoundedCache(100)
    for number in range(500):
        kept.put(number % 40, number % 17, number)
        assert sum(number % 17 for number in map(kept.find, range(40)) if number is not None) <= 100
    kept.put("whole", 100, 1)
    assert kept.find("whole") == 1
    kept.put("too heavy", 101, 2)
    assert kept.find("too heavy") is None
    kept.put("again", 100, 3)  # nothing of what went is counted any more
    assert kept.find("again") == 3


def test_put_again_it_weighs_once() -> None:
    kept: BoundedCache[int] = BoundedCache(10)
    kept.put("b", 5, 0)
    for number in range(5):
        kept.put("a", 5, number)
    assert (kept.find("a"), kept.find("b")) == (4, 0)


def test_nothing_is_used_for_longer_than_its_age(clock: Clock) -> None:
    kept: BoundedCache[str] = BoundedCache(10, age_s=60)
    kept.put("a", 10, "a")
    clock.now += 60
    assert kept.find("a") == "a"
    clock.now += 1
    assert kept.find("a") is None  # being used makes nothing younger
    assert kept.get("a", 10, lambda: "new") == "new"
    assert kept.find("a") == "new"


def test_what_is_too_old_goes_when_something_comes(clock: Clock) -> None:
    kept: BoundedCache[str] = BoundedCache(10, age_s=60)
    kept.put("old", 9, "old")
    clock.now += 61
    kept.put("new", 1, "new")
    assert list(kept._known) == ["new"]
    assert kept._weight == 1


def test_many_threads_leave_a_true_weight() -> None:
    kept: BoundedCache[int] = BoundedCache(50)
    together = Barrier(8)

    def work(first: int) -> None:
        together.wait(30)
        for number in range(400):
            key = (first + number) % 23
            assert kept.get(key, key, lambda key=key: key) == key

    threads = [Thread(target=work, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert kept._weight == sum(weight for _, weight, _ in kept._known.values()) <= 50


def test_a_mark_tells_contents_apart() -> None:
    assert mark("a", 1, b"x") == mark("a", 1, b"x")
    different = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), ("c", "ab"), (b"ab", b"cd")]
    assert len({mark(*one) for one in different}) == len(different)
    assert mark("\udc80")  # what is no text has one, too
