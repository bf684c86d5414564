"""Results are sent again to a new primary of Redis, for as long as it may lack them."""

from __future__ import annotations

import threading
import weakref
from functools import partial

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.support.system import until
from workers.machine.results import LOOK_S, MOST_REMEMBERED, REMEMBER_S, SentResults, remember_sent


def stopped() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def test_what_was_sent_lately_is_sent_again_and_one_that_fails_stops_no_other() -> None:
    now, sent = 0.0, list[str]()
    results = SentResults(clock=lambda: now)
    results.remember(lambda: sent.append("old"))
    now = REMEMBER_S + 1

    def away() -> None:
        raise RedisConnectionError("away")

    results.remember(away)
    results.remember(lambda: sent.append("new"))
    results.remember(lambda: sent.append("newer"))
    results.send_again(stopped())
    assert sent == ["newer", "new"]


def test_what_no_primary_takes_is_given_up_when_it_is_old_and_tried_again_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workers.machine.results.LOOK_S", 0)
    now, tries = 0.0, list[str]()
    results, stop = SentResults(clock=lambda: now), threading.Event()

    def refused(name: str) -> None:
        nonlocal now
        tries.append(name)
        now += 0.4 * REMEMBER_S
        raise RedisConnectionError("out of memory")

    for name in ("one", "two"):
        results.remember(partial(refused, name))
    results.send_again(stop)
    assert tries == ["two", "one", "two"]


def test_a_further_doubt_begins_with_all_results_again() -> None:
    results, tries = SentResults(), list[str]()

    def doubted() -> None:
        tries.append("tried")
        results.doubt()
        raise RedisConnectionError("this one is none any more, either")

    results.remember(doubted)
    results.send_again(threading.Event())
    assert tries == ["tried"]


def test_no_more_are_kept_than_memory_allows() -> None:
    sent = list[int]()
    results = SentResults()
    for number in range(MOST_REMEMBERED + 5):
        results.remember(lambda number=number: sent.append(number))
    results.send_again(stopped())
    assert len(sent) == MOST_REMEMBERED


def test_the_thread_sends_again_when_there_is_doubt_and_only_then() -> None:
    results, stop, sent = SentResults(), threading.Event(), threading.Event()
    results.remember(sent.set)
    results.doubt()
    thread = threading.Thread(target=results.until_stopped, args=(stop,), daemon=True)
    thread.start()
    assert sent.wait(30 * LOOK_S)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


def test_an_idle_machine_forgets_what_is_old() -> None:
    now, stop = 0.0, threading.Event()
    results = SentResults(clock=lambda: now)
    work = threading.Event()  # anything that can be referred to weakly
    results.remember(partial(work.is_set))
    kept = weakref.ref(work)
    del work
    assert kept()
    now = REMEMBER_S + 1
    thread = threading.Thread(target=results.until_stopped, args=(stop,), daemon=True)
    thread.start()
    until(lambda: kept() is None, 30, "it is forgotten")
    stop.set()
    results.doubt()  # ends the wait
    thread.join(30)


def test_nothing_is_remembered_where_redis_has_no_successor() -> None:
    assert remember_sent("redis://127.0.0.1:6379/0") is None
    assert remember_sent("redis+sentinel://127.0.0.1:26379/grader/0") is not None
