"""Queue places and expected times, by one forecast every two seconds that all requests share."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from flask import current_app
from sqlalchemy.orm import Session

from app.web.services import Dispatch
from grading.broker.canaries import rate_of_checks
from grading.broker.heartbeats import Lease
from grading.broker.machine_status import MachineState, peer, takes_part
from grading.domain.round_states import RoundState, StageState
from grading.execution.throughput import Rate, seconds_until_checked
from grading.scheduling.cluster_view import Peer
from grading.scheduling.forecast import Forecast, Line, Running, Scene, forecast, remaining_of
from grading.scheduling.speed_estimates import with_guesses
from grading.store.rounds.queue import (
    QueuePositions,
    SentRun,
    count_new_rounds,
    list_sent,
    load_positions,
    sandbox_positions,
)
from grading.store.views.status import Speed, Standing, load_speed
from grading.store.views.submission import Queue, StageView

LOOK_EVERY_S = 2.0
REST = 20.0
"""So many times as long as a look took, nobody looks: at most a twentieth of a core goes into looking."""
COMING_S = 300.0
"""Who came within so long tells how many will come."""
OVER = (StageState.DONE, StageState.DEAD)


@dataclass(frozen=True)
class Outlook:
    """The work as it was looked at."""

    places: QueuePositions
    speed: Speed
    able: frozenset[str] = frozenset()
    """Stages that some machine does now."""
    forecast: Forecast | None = None
    """Nothing as long as no machine has measured its speed: then the last hour's gradings tell."""
    lines: Mapping[Line, Mapping[str, int]] = field(default_factory=dict)
    """(stage, priority) -> runs that machines can take, by their places from 0."""
    next_up: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """priority -> rounds that were sent and not begun, by their places from 0."""
    to_run: Mapping[str, int] = field(default_factory=dict)
    """Rounds whose work is to be run, by their places from 1."""
    rate: Rate | None = None
    """Of the sandbox; nothing as long as it has not told."""

    def queue(self, view: Standing, age_s: float) -> Queue | None:
        """Where a round stands, `age_s` after this look; nothing when it is over."""
        if RoundState(view.state).final:
            return None
        left = self._left_s(view)
        eta_s = None if left is None else max(1, round(left - age_s))
        return Queue(position=self._position(view), eta_s=eta_s)

    def _position(self, view: Standing) -> int:
        mine = self.next_up.get(view.priority, {})
        first = len(self.next_up.get("interactive", {})) if view.priority == "batch" else 0
        if view.state == RoundState.RUNNING:
            return first + mine[view.round_id] + 1 if view.round_id in mine else 0
        return first + len(mine) + self.places.position(view.round_id, view.priority)

    def _left_s(self, view: Standing) -> float | None:
        """Nothing where no machine does what is to be done, or it takes longer than is known."""
        if any(stage.state not in OVER and stage.stage not in self.able for stage in view.stages):
            return None
        return self._usual_s(view) if self.forecast is None else self._eta_s(view)

    def _usual_s(self, view: Standing) -> float | None:
        """By how long gradings took lately."""
        if view.state == RoundState.RUNNING:
            begun = view.dispatched_at or view.created_at
            left = self.speed.typical_s - (self.speed.now - begun).total_seconds()
            return left if left > 0 else None
        return self.speed.typical_s + self.speed.every_s * (self._position(view) - 1)

    def _eta_s(self, view: Standing) -> float | None:
        """The later of its stages, and what comes before and after.

        While its work waits for the sandbox, machines grade those whose work has run. What takes longer
        counts: `max(machines, sandbox + alone)`, where `machines` is the end with all who go before it there,
        `sandbox` the time until its work has run, and `alone` the end with nobody before it.
        """
        ends = [self._end_s(view, stage) for stage in view.stages if stage.state not in OVER]
        if any(end is None for end in ends):
            return None
        prepared = 0.0
        place = self.to_run.get(view.round_id, 0)
        if place and self.rate is not None:
            checked = seconds_until_checked(place, self.rate.slots, self.rate.seconds)
            return max([*cast("list[float]", ends), checked + self._alone_s(view)]) + self.speed.combine_s
        if view.state == RoundState.RECEIVED:
            age = (self.speed.now - view.created_at).total_seconds()
            prepared = max(0.0, self.speed.prepare_s - age)
        return prepared + max(cast("list[float]", ends), default=0.0) + self.speed.combine_s

    def _alone_s(self, view: Standing) -> float:
        """The later of its stages if nobody went before it."""
        assert self.forecast is not None
        left = [stage.stage for stage in view.stages if stage.state not in OVER]
        return max((self.forecast.waiting(stage, view.priority, 0) or 0.0 for stage in left), default=0.0)

    def _end_s(self, view: Standing, stage: StageView) -> float | None:
        if self.forecast is None:
            return None
        line = self.lines.get((stage.stage, view.priority), {})
        run = stage.run_id if stage.state == StageState.DISPATCHED else None
        if run is not None and run in self.forecast.runs:
            return self.forecast.runs[run]
        ahead = line.get(run or "", len(line))
        if view.state != RoundState.RUNNING:
            ahead += self.places.ahead(view.round_id, view.priority)
        return self.forecast.waiting(stage.stage, view.priority, ahead)


class Expecting:
    """Keeps the last outlook. While one request looks anew, the others go on with the old one."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._lock = threading.Lock()
        self._outlook: tuple[float, Outlook] | None = None
        self._rest_s = LOOK_EVERY_S

    def queue(self, session: Session, view: Standing) -> Queue | None:
        """Where a submission's round stands, and about how long it takes."""
        if RoundState(view.state).final:
            return None
        looked_at, outlook = self._cached(session)
        return outlook.queue(view, time.monotonic() - looked_at)

    def waiting(self, session: Session) -> Mapping[str, int]:
        """priority -> rounds that wait in the database."""
        return self._cached(session)[1].places.waiting

    def _cached(self, session: Session) -> tuple[float, Outlook]:
        cached = self._outlook
        if cached is not None and time.monotonic() - cached[0] < self._rest_s:
            return cached
        if self._lock.acquire(blocking=cached is None):
            try:
                if self._outlook is cached:
                    began = time.monotonic()
                    self._outlook = (began, self._look(session))
                    self._rest_s = max(LOOK_EVERY_S, REST * (time.monotonic() - began))
            finally:
                self._lock.release()
        return cast("tuple[float, Outlook]", self._outlook)

    def _look(self, session: Session) -> Outlook:
        line, speed, runs = load_positions(session), load_speed(session), list_sent(session)
        coming, waiting = count_new_rounds(session, COMING_S), sandbox_positions(session)
        leases = self._dispatch.leases([one.run for one in runs]) if runs else {}
        expected = outlook(line, speed, runs, leases, self._dispatch.machines(), coming)
        rate = rate_of_checks(self._dispatch.parts()) if waiting else None
        return replace(expected, to_run=waiting, rate=rate)


def outlook(
    line: QueuePositions,
    speed: Speed,
    runs: Sequence[SentRun],
    leases: Mapping[str, Lease],
    machines: Sequence[MachineState],
    coming: Mapping[str, int],
) -> Outlook:
    """Put together what was read; `coming` are the newcomers of COMING_S, by priority."""
    lines: dict[Line, dict[str, int]] = {}
    next_up: dict[str, dict[str, int]] = {}
    begun = {one.round_id for one in runs if one.run in leases}
    for one in runs:
        if one.run not in leases:
            here = lines.setdefault((one.stage, one.priority), {})
            here[one.run] = len(here)
        if one.round_id not in begun:
            there = next_up.setdefault(one.priority, {})
            there.setdefault(one.round_id, len(there))
    peers = with_guesses(
        {m.name: peer(m.heartbeat) for m in machines if m.heartbeat and takes_part(m.heartbeat)}
    )
    scene = Scene(
        peers,
        _running(runs, leases, peers),
        {
            (stage, priority): len(lines.get((stage, priority), ())) + line.waiting.get(priority, 0)
            for stage in {s for one in peers.values() for s in one.speed_profiles}
            for priority in ("interactive", "batch")
        },
        {
            (stage, priority): count / COMING_S
            for stage in {s for one in peers.values() for s in one.speed_profiles}
            for priority, count in coming.items()
        },
    )
    measured = any(profile.seen >= 1 for one in peers.values() for profile in one.speed_profiles.values())
    return Outlook(line, speed, _able(machines), forecast(scene) if measured else None, lines, next_up)


def _able(machines: Sequence[MachineState]) -> frozenset[str]:
    takes = [one for one in machines if one.alive and (one.heartbeat is None or takes_part(one.heartbeat))]
    return frozenset(
        s for one in takes for s in one.stages if one.heartbeat is None or s not in one.heartbeat.broken
    )


def _running(
    runs: Sequence[SentRun], leases: Mapping[str, Lease], peers: Mapping[str, Peer]
) -> list[Running]:
    at_once = Counter((lease.machine, lease.stage) for lease in leases.values())
    found = []
    for one in runs:
        lease = leases.get(one.run)
        if lease is None or lease.machine not in peers:
            continue
        profile = peers[lease.machine].speed_profiles.get(lease.stage)
        waits = lease.phase in ("waiting", "queued", "starting", "loading")
        since = 0.0 if waits else lease.since_s
        remaining = remaining_of(lease.tokens, profile, since, at_once[lease.machine, lease.stage])
        found.append(Running(one.run, lease.machine, lease.stage, remaining))
    return found


def expecting() -> Expecting:
    """That of the current app."""
    return cast(Expecting, current_app.extensions["grader-expecting"])
