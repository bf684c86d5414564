"""What pages about a whole class rest on, kept in the process as long as nothing in it has changed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from flask import current_app
from sqlalchemy.orm import Session

from grading.store import class_facts
from grading.store.class_facts import Stamp

T = TypeVar("T")
MOST = 32
"""Assignments of which something is kept."""


class Kept(Generic[T]):
    """One value for each assignment."""

    def __init__(self, make: Callable[[Session, int], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._known: OrderedDict[int, tuple[Stamp, T]] = OrderedDict()

    def get(self, session: Session, assignment_id: int) -> T:
        """That of an assignment, made anew where something changed."""
        now = class_facts.stamp(session, assignment_id)
        with self._lock:
            found = self._known.get(assignment_id)
        if found is not None and found[0] == now:
            return found[1]
        made = self._make(session, assignment_id)
        with self._lock:
            self._known[assignment_id] = now, made
            self._known.move_to_end(assignment_id)
            while len(self._known) > MOST:
                self._known.popitem(last=False)
        return made


def kept(name: str, make: Callable[[Session, int], T]) -> Kept[T]:
    """The app's own, by name."""
    found: Kept[T] = current_app.extensions.setdefault(f"grader-kept-{name}", Kept(make))
    return found
