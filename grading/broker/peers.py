"""Machines as their beats tell, as values for decisions about the whole cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping

from grading.broker.heartbeats import Beat
from grading.scheduling.cluster_view import Pace, Peer


def takes_part(beat: Beat) -> bool:
    """Whether this machine may take work."""
    return beat.alive and not beat.drained


def pace_told(told: Mapping[str, float]) -> Pace | None:
    """A speed as a beat tells it; nothing where that makes no sense."""
    try:
        values = {name: float(value) for name, value in told.items()}
        full = int(values.pop("full"))
        pace = Pace(full=full, **values)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None  # a beat is a stranger's word, perhaps of another version
    return pace if _sane(pace) else None


def _sane(pace: Pace) -> bool:
    figures = (pace.alone_s, pace.full_s, pace.health)
    return pace.full >= 1 and all(math.isfinite(f) and f > 0 for f in figures)


def peer(beat: Beat) -> Peer:
    """A machine as its beat tells; one of an earlier version tells no speeds, they are guessed."""
    able = [s for s in beat.stages if s not in beat.broken]
    running = beat.running
    if beat.busy and not running and able:
        running = {able[0]: beat.busy}  # an earlier version does not say at what, but it is busy
    paces = {s: pace for s in able if (pace := pace_told(beat.paces.get(s, {}))) is not None}
    return Peer(
        name=beat.machine,
        slots=beat.limit or beat.slots,
        stages=tuple(able),
        joins_after_s=beat.joins_after_s,
        reserved=beat.reserved,
        paces=paces,
        running=running,
        left=beat.left,
        load_s=beat.load_s,
    )
