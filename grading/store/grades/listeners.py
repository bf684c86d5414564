"""Who hears, in the same transaction, that what counts of a submission may have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlalchemy.orm import Session

Listener = Callable[[Session, Sequence[str]], object]
"""Gets the session and the ids of submissions; may only write rows, as an outbox does."""
_listeners: list[Listener] = []


class NoListener(Exception):
    """This process did not connect its listeners; call connect_platforms first."""


def on_grade_changed(listener: Listener) -> None:
    """Call the listener after every change; connecting it again changes nothing."""
    if listener not in _listeners:
        _listeners.append(listener)


def grade_changed(session: Session, submission_ids: Iterable[str]) -> None:
    """Call all listeners. Raises NoListener rather than lose a score that a platform must be told."""
    if not _listeners:
        raise NoListener
    ids = sorted(submission_ids)
    for listener in _listeners:
        listener(session, ids)
