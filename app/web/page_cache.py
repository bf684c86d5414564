"""Cache of page data by course or assignment, valid until something in it changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from flask import current_app
from sqlalchemy.orm import Session

from app.web.services import services
from grading.store import change_tracking
from grading.store.change_tracking import Stamp

T = TypeVar("T")
MOST = 64
"""Courses or assignments of which something is kept."""


class Cache(Generic[T]):
    """One value for each course, for each assignment, or for each of its parts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Stamp, T]] = OrderedDict()

    def get(
        self,
        session: Session,
        course_id: int,
        assignment_id: int | None,
        make: Callable[[], T],
        part: Hashable = None,
    ) -> T:
        """That of an assignment, or of a course, or of a part of it; made anew where something changed."""
        # looked at first: what commits while it is made gives another stamp next time
        now = change_tracking.stamp(session, course_id, assignment_id)
        place = (course_id, assignment_id, part)
        with self._lock:
            found = self._values.get(place)
            if found is not None and found[0] == now:
                self._values.move_to_end(place)
                return found[1]
        made = make()
        with self._lock:
            self._values[place] = now, made
            self._values.move_to_end(place)
            while len(self._values) > MOST:
                self._values.popitem(last=False)
        return made


def of_assignment(
    name: str,
    session: Session,
    course_id: int,
    assignment_id: int,
    make: Callable[[Session, int], T],
    part: Hashable = None,
) -> T:
    """What `make` says of an assignment, by the name of what it is; `part` tells several apart."""
    made = lambda: _made(make, assignment_id)  # noqa: E731
    return _cache(name, make).get(session, course_id, assignment_id, made, part)


def of_course(name: str, session: Session, course_id: int, make: Callable[[Session, int], T]) -> T:
    """What `make` says of a course and all of its assignments, by the name of what it is."""
    return _cache(name, make).get(session, course_id, None, lambda: _made(make, course_id))


def _made(make: Callable[[Session, int], T], number: int) -> T:
    """In a transaction of its own: much is read, some of it as it comes."""
    with services().store.read() as session:
        return make(session, number)


def _cache(name: str, _make: Callable[[Session, int], T]) -> Cache[T]:
    found: Cache[T] = current_app.extensions.setdefault(f"grader-cache-{name}", Cache())
    return found
