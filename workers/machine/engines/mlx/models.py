"""The models that the mlx engine keeps loaded: all of them, or a few that take turns."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from workers.machine.engines.base import Progress
from workers.machine.engines.mlx.generation import CallerWait
from workers.machine.engines.mlx.model import LoadedModel, model_digest

LOADING = "The model was still loading"
TURN = "Other models were in use, so this one was not loaded"


@dataclass
class LoadedEntry:
    """A model that is there or being loaded, and the digest of its files, which is read at the same time."""

    model: Future[LoadedModel]
    digest: Future[str]
    users: int = 0


class Models:
    """Loads models when they are asked for. With `most`, those idle for longest make room. Thread-safe.

    A model counts as many as `places` says, those of its draft model among them.
    Who asks comes in turn: nobody waits for ever because others keep a model busy.
    """

    def __init__(
        self,
        load: Callable[[str], Future[LoadedModel]],
        unload: Callable[[LoadedModel], None],
        most: int | None,
        places: Callable[[str], int] = lambda _: 1,
    ) -> None:
        self._load = load
        self._unload = unload
        self._most = most
        self._places = places
        self._held: OrderedDict[str, LoadedEntry] = OrderedDict()
        self._turns: deque[CallerWait] = deque()
        self._lock = threading.Lock()

    @contextmanager
    def use(self, name: str, patience: CallerWait, progress: Progress) -> Iterator[tuple[LoadedModel, str]]:
        """A model and its digest; it stays loaded in the block.

        Raises ModelMissing, or Cancelled or BudgetExceeded when the waiting is over before it is there.
        """
        held = self._enter(name, patience, progress)
        try:
            if not (held.model.done() and held.digest.done()):
                progress(0, "loading")
            loaded = patience.wait_for(held.model, LOADING)
            yield loaded, patience.wait_for(held.digest, LOADING)
        finally:
            self._leave(held)

    def digest(self, name: str) -> Future[str]:
        """The digest of a model, as it was loaded or as its files are now."""
        with self._lock:
            held = self._held.get(name)
        return held.digest if held and held.model.done() else _digesting(name)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._held.clear()

    def _enter(self, name: str, patience: CallerWait, progress: Progress) -> LoadedEntry:
        told = False
        with self._lock:
            self._turns.append(patience)
        try:
            while True:
                with self._lock:
                    if self._turns[0] is patience and (held := self._take(name)) is not None:
                        return held
                if not told:
                    told = True
                    progress(0, "queued")
                patience.sleep(doing=TURN)
        finally:
            with self._lock:
                self._turns.remove(patience)
                self._call_next()

    def _take(self, name: str) -> LoadedEntry | None:
        """The model, or nothing while there is no room for it."""
        held = self._held.get(name)
        if held is not None and held.model.done() and held.model.exception() is not None:
            held = None
            del self._held[name]
        if held is None:
            if not self._room(self._places(name)):
                return None
            held = self._held[name] = LoadedEntry(self._load(name), _digesting(name))
        self._held.move_to_end(name)
        held.users += 1
        return held

    def _room(self, places: int) -> bool:
        """Whether a model of so many places may be loaded, after those that are idle made room for it."""
        if self._most is None:
            return True
        for name, held in list(self._held.items()):
            if self._taken() + places <= self._most:
                break
            if held.users == 0:
                del self._held[name]
                if held.model.done() and held.model.exception() is None:
                    self._unload(held.model.result())
        return self._taken() + places <= self._most

    def _taken(self) -> int:
        return sum(self._places(name) for name in self._held)

    def _leave(self, held: LoadedEntry) -> None:
        with self._lock:
            held.users -= 1
            self._call_next()

    def _call_next(self) -> None:
        if self._turns:
            self._turns[0].wake()


def _digesting(name: str) -> Future[str]:
    """The digest of a model, read in a thread of its own: large files take a minute."""
    future: Future[str] = Future()

    def read() -> None:
        try:
            future.set_result(model_digest(name))
        except BaseException as exc:  # noqa: BLE001 - whoever waits for the digest gets it
            future.set_exception(exc)

    threading.Thread(target=read, name="mlx-digest", daemon=True).start()
    return future
