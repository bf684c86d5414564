"""The rounds whose work this process runs: taken in SQL, kept there, and given back whatever happens."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy.exc import SQLAlchemyError

from grading.execution.throughput import Mean
from grading.store import outbox
from grading.store.outbox import Hold
from grading.store.rounds import preparing
from workers.server.context import Server

log = logging.getLogger(__name__)
HOLD_S = 15.0
"""So long nobody else runs a round's work after the last sign of life of who does."""
SIGN_EVERY_S = 4.0
PUT_OFF_S = (15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0)
"""Waits after the first, second, … time that the server could not run a round's work."""


@dataclass
class Holding:
    """What this process holds in SQL, so that others leave it alone."""

    server: Server
    ending: threading.Event = field(default_factory=threading.Event)
    """Set when this process ends: what cannot be run now is for somebody else."""
    speed: Mean = field(default_factory=Mean)
    """Of rounds from being taken to being prepared."""
    _mine: dict[str, Hold] = field(default_factory=dict)
    _students: dict[str, int] = field(default_factory=dict)
    """Whose work is run now, by round."""
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def turn(self, round_id: str) -> Iterator[bool]:
        """False while other work of the same student is run here: one's endless loops leave others a slot."""
        with self.server.store.read() as session:
            student = preparing.student_of(session, round_id)
        with self._changed:
            others = [whose for one, whose in self._students.items() if one != round_id]
            mine = student not in others and round_id not in self._students
            if mine and student is not None:
                self._students[round_id] = student
        try:
            yield student not in others
        finally:
            with self._changed:
                if mine:
                    self._students.pop(round_id, None)

    def take(self, round_id: str) -> Hold | None:
        """Nothing when it is done, not due yet, or somebody else is at it."""
        with self.server.store.write() as session:
            held = outbox.hold(session, "trial", round_id, HOLD_S)
        if held is not None:
            with self._changed:
                self._mine[round_id] = held
        return held

    def waits(self, round_id: str) -> bool:
        """Whether it is still to be done, by whomever."""
        with self.server.store.read() as session:
            return outbox.is_open(session, "trial", round_id)

    def give_back(self, held: Hold) -> None:
        """It is prepared, or due again for the next who tries."""
        self._forget(held)
        with self.server.store.write() as session:
            outbox.let_go(session, held)

    def put_off(self, held: Hold, why: str) -> float:
        """It could not be run here now, through no fault of the work; returns the seconds until it is due."""
        self._forget(held)
        wait_s = PUT_OFF_S[min(held.tries, len(PUT_OFF_S)) - 1]
        with self.server.store.write() as session:
            outbox.put_off(session, held, why, wait_s)
        return wait_s

    def _forget(self, held: Hold) -> None:
        with self._changed:
            if self._mine.get(held.key) == held:
                del self._mine[held.key]
            self._changed.notify_all()

    def until_none(self, seconds: float) -> bool:
        """Wait until nothing is held any more; False when that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._mine, seconds)

    def give_all_back(self) -> None:
        """What is still held when this process must end; best effort, the holds lapse by themselves."""
        for held in list(self._mine.values()):
            try:
                self.give_back(held)
            except SQLAlchemyError as error:
                log.warning("round %s could not be given back: %s", held.key, error)

    def keep(self, stop: threading.Event) -> None:
        """Say from time to time that they are still under way; the body of a thread."""
        while not stop.wait(SIGN_EVERY_S):
            began = time.monotonic()
            try:
                self.sign()
            except SQLAlchemyError as error:
                log.warning("the database is away, rounds cannot be held: %s", error)
            if (took := time.monotonic() - began) > HOLD_S - SIGN_EVERY_S:
                log.warning("holding rounds took %.0f s; others may have taken them", took)

    def sign(self) -> None:
        """Hold everything for another while."""
        with self._changed:
            mine = list(self._mine.values())
        if not mine:
            return
        with self.server.store.write() as session:
            lost = [held.key for held in mine if not outbox.hold_on(session, held, HOLD_S)]
        for round_id in lost:
            # this process stood still for too long; the first who is done counts
            log.warning("the work of round %s is run by somebody else, too", round_id)
