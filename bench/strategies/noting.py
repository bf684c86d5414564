"""A reader that notes when its passes end; it may send nothing until all is read, or read prompts in turn."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from workers.machine.engines.remote_prefill.cache_chunks import Piece
from workers.machine.engines.remote_prefill.models import Reader
from workers.machine.engines.remote_prefill.prefill import Prompt


class NotingReader(Reader):
    """`serially`: what was read goes out after the last pass. `one_by_one`: never two prompts in one pass."""

    def __init__(
        self, models: Sequence[str], *, step: int, serially: bool = False, one_by_one: bool = False
    ) -> None:
        super().__init__(models, step=step)
        self._serially = serially
        self._one_by_one = one_by_one
        self._notes: list[dict[str, Any]] = []
        self._waiting: deque[tuple[str, Prompt]] = deque()
        self._reads = False
        self._noting = threading.Lock()

    def submit(self, fingerprint: str, prompt: Prompt) -> None:
        """See Reader."""
        prompt.hand = self._noted(prompt, prompt.hand)
        if self._one_by_one:
            prompt.done.add_done_callback(lambda _: self._next())
            with self._noting:
                if self._reads:
                    self._waiting.append((fingerprint, prompt))
                    return
                self._reads = True
        super().submit(fingerprint, prompt)

    def taken(self) -> list[dict[str, Any]]:
        """The notes since the last call: when reading began and each pass ended, and the bytes of each."""
        with self._noting:
            notes, self._notes = self._notes, []
        return notes

    def _next(self) -> None:
        with self._noting:
            self._reads = bool(self._waiting)
            following = self._waiting.popleft() if self._waiting else None
        if following:
            super().submit(*following)

    def _noted(self, prompt: Prompt, hand: Callable[[list[Piece]], None]) -> Callable[[list[Piece]], None]:
        note: dict[str, Any] = {"passes": [], "bytes": []}
        held: list[Piece] = []

        def noting(pieces: list[Piece]) -> None:
            if not note["passes"]:
                note["begun"] = prompt.begun
                with self._noting:
                    self._notes.append(note)
            note["passes"].append(time.monotonic())
            note["bytes"].append(sum(sum(piece.lengths) for piece in pieces))
            held.extend(pieces)
            if not self._serially or prompt.at == len(prompt.ids):
                hand(list(held))
                held.clear()

        return noting
