"""Celery's pool of threads, but for one thing: a task whose end cannot be recorded gives its slot back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import apply_target
from celery.concurrency.thread import ApplyResult, TaskPool

log = logging.getLogger(__name__)


class SlotThreads(TaskPool):
    """Threads that tell the consumer of every end.

    Where a result cannot be stored, Celery stores an error; where that fails as well, what it raises ends in
    the thread. The consumer then takes the task for one under way for ever: the slot is lost, and a worker
    that lost all of them looks busy. A like fault of other pools is celery/celery#10462.
    """

    def on_apply(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Callable[..., Any] | None = None,
        error_callback: Callable[..., Any] | None = None,
        **_: Any,
    ) -> ApplyResult:
        """Begin a task as soon as a thread is free."""

        def work() -> None:
            try:
                apply_target(target, args or (), kwargs, callback, accept_callback)
            except Exception:
                log.exception("the end of a task could not be recorded; its slot is free again")
                if error_callback is not None:
                    error_callback(ExceptionInfo(), return_ok=True)  # recording it was tried already

        return ApplyResult(self.executor.submit(work))
