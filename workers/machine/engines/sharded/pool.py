"""Keeps the ranks of one model running: starts them when first asked for, and again when one is lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from grading.domain.errors import EngineError
from workers.machine.engines.base import Progress
from workers.machine.engines.mlx.waiting import Patience
from workers.machine.engines.sharded.rank_group import Crew

log = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Before ranks are started again; twice as long each time, until they have worked for STEADY_S."""
STEADY_S = 60.0
STARTING = "The ranks were still starting; the model was not there"


class Pool:
    """The ranks of one model, again and again. Thread-safe; a thread of its own leads them."""

    def __init__(self, open_crew: Callable[[], Crew], tell_loss: Callable[[str], bool]) -> None:
        """`tell_loss` is called with why the ranks are away; false when nobody listens."""
        self._open_crew = open_crew
        self._tell_loss = tell_loss
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._crew: Crew | None = None
        self._coming: Future[Crew] = Future()
        """The next crew that is ready, or why it is not to be had."""
        self._unheard: EngineError | None = None
        self._thread = threading.Thread(target=self._keep, name="sharded", daemon=True)
        self._thread.start()

    def use(self, patience: Patience, progress: Progress) -> Crew:
        """The ranks, ready. Raises what they could not be started for, Cancelled or BudgetExceeded."""
        with self._lock:
            coming = self._coming
        if not coming.done():
            progress(0, "loading")
        return patience.wait_for(coming, STARTING)

    def lend(self, patience: Patience, progress: Progress) -> Crew:
        """The ranks for a generation; raises as `use`.

        A loss that nobody has heard of yet is raised at once: so the machine learns of it, and takes no more
        work until the ranks are back.
        """
        with self._lock:
            error, self._unheard = self._unheard, None
        if error is not None:
            raise error
        try:
            return self.use(patience, progress)
        except EngineError:
            with self._lock:
                self._unheard = None
            raise

    @property
    def crew(self) -> Crew | None:
        """The ranks that run now, if they do."""
        return self._crew

    def close(self, seconds: float) -> None:
        """End the ranks and all generations; waits for that at most so long."""
        self._closed.set()
        with self._lock:
            crew = self._crew
        if crew is not None:
            crew.stop()
        self._thread.join(seconds)

    def _keep(self) -> None:
        """Start, lead, end, and again."""
        pause = FIRST_PAUSE_S
        while not self._closed.is_set():
            began = time.monotonic()
            error = self._live_once()
            if self._closed.is_set():
                break
            if time.monotonic() - began >= STEADY_S:
                pause = FIRST_PAUSE_S
            log.error("the ranks start again in %g s: %s", pause, error.message)
            self._closed.wait(pause)
            pause = min(LONGEST_PAUSE_S, 2 * pause)
        self._give_up(EngineError("The engine was closed."))

    def _live_once(self) -> EngineError:
        """One crew from start to end; why it ended."""
        crew = self._open_crew()
        with self._lock:
            self._crew = crew
        if self._closed.is_set():
            crew.stop()
        error = EngineError("The engine was closed.")
        try:
            crew.start()
            with self._lock:
                self._unheard = None
                self._coming.set_result(crew)
            crew.play()
        except EngineError as failed:
            error = failed
        except Exception as failed:
            log.exception("leading the ranks broke")  # this thread must outlive anything
            error = EngineError(f"Leading the ranks broke: {type(failed).__name__}: {failed}")
        self._lost(crew, error)
        return error

    def _lost(self, crew: Crew, error: EngineError) -> None:
        """These ranks are no more: new callers wait for the next ones."""
        waited = crew.refuse(error)
        with self._lock:
            self._crew = None
            coming = self._coming
            self._coming = Future()
        heard = self._closed.is_set() or self._tell_loss(error.message) or waited
        with self._lock:
            self._unheard = None if heard else error
        if not coming.done():
            coming.set_exception(error)
        crew.end(error)

    def _give_up(self, error: EngineError) -> None:
        with self._lock:
            coming = self._coming
        if not coming.done():
            coming.set_exception(error)
