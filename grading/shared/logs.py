"""Which submission, round and run the messages of this thread are about.

The ids stand in every line of JSON that is logged meanwhile, by whomever; see cli/logs.py.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from structlog.contextvars import bind_contextvars, bound_contextvars, clear_contextvars

NAMES = ("submission", "round", "run", "stage", "machine")


def working_on(**ids: str) -> AbstractContextManager[None]:
    """Messages inside are about these NAMES; empty ones say nothing."""
    return bound_contextvars(**_said(ids))


def begin(**ids: str) -> None:
    """From now on messages are about these NAMES and nothing else, as at the start of a request."""
    clear_contextvars()
    bind_contextvars(**_said(ids))


def _said(ids: dict[str, str]) -> dict[str, str]:
    assert ids.keys() <= set(NAMES), f"not an id: {ids.keys() - set(NAMES)}"
    return {name: value for name, value in ids.items() if value}
