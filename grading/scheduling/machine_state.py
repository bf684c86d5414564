"""A machine in the forecast: its batch as it goes on, with the speeds of `grading.scheduling.routing`."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import replace

from grading.scheduling.cluster_view import Peer
from grading.scheduling.routing import seconds


class Station:
    """A machine in play. All runs of a stage there go equally fast, so one clock a stage is enough."""

    def __init__(self, peer: Peer) -> None:
        """With nothing in hand."""
        self.peer = replace(peer, running={}, left={})
        self.load_s = dict(peer.load_s)
        self.clock = dict.fromkeys(peer.paces, 0.0)
        self.runs: dict[str, list[tuple[float, int]]] = {stage: [] for stage in peer.paces}
        """stage -> (the clock at its end, its ticket), as a heap."""
        self.taken = 0
        self.due: Mapping[str, float] = {}
        self._known: dict[tuple[int, ...], dict[str, float]] = {}

    @property
    def free(self) -> int:
        """Runs it would begin at once."""
        return self.peer.slots - sum(map(len, self.runs.values()))

    def as_peer(self) -> Peer:
        """As the others see it."""
        running = {s: len(of) for s, of in self.runs.items() if of}
        left = {s: sum(end - self.clock[s] for end, _ in self.runs[s]) for s in running}
        return replace(self.peer, running=running, left=left, load_s=self.load_s)

    def speeds(self) -> dict[str, float]:
        """stage -> jobs a second of each of its runs, in the batch as it is."""
        counts = tuple(map(len, self.runs.values()))
        if counts not in self._known:
            self._known[counts] = {s: 1.0 / seconds(self._beside(s), s) for s, of in self.runs.items() if of}
        return self._known[counts]

    def _beside(self, stage: str) -> Peer:
        running = {s: len(of) - (s == stage) for s, of in self.runs.items()}
        return replace(self.peer, running=running, load_s={})

    def add(self, stage: str, work: float, ticket: int) -> None:
        """Begin a run; a model that is not there is loaded first."""
        load = self.load_s.pop(stage, 0.0) / self.peer.paces[stage].seconds(1)
        heapq.heappush(self.runs[stage], (self.clock[stage] + work + load, ticket))

    def next_s(self) -> float:
        """Seconds to its next end."""
        speeds = self.speeds()
        return min(((self.runs[s][0][0] - self.clock[s]) / v for s, v in speeds.items()), default=math.inf)

    def on(self, span: float) -> list[int]:
        """Let so many seconds pass; the tickets of what ended."""
        for stage, speed in self.speeds().items():
            self.clock[stage] += span * speed
        ended = []
        for stage, runs in self.runs.items():
            while runs and runs[0][0] <= self.clock[stage] + 1e-9:
                ended.append(heapq.heappop(runs)[1])
        return ended
