"""What a machine of the configuration is at, as the beats of its processes tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from grading.broker.canaries import OVERDUE_S
from grading.broker.heartbeats import Beat
from grading.domain.model_digests import Difference, claims, differing


@dataclass(frozen=True)
class MachineState:
    """A machine of the configuration as its beats tell."""

    name: str
    role: str
    slots: int
    stages: Mapping[str, Mapping[str, str]]
    """stage -> {"engine", "model", and where it is known "digest" of the weights}"""
    alive: bool = False
    busy: int = 0
    guests: int = 0
    """Slots that requests of other tools have, beside those that are busy."""
    beat_age_s: float | None = None
    drained: bool = False
    """It was taken out: it gets nothing new."""
    canary_age_s: float | None = None
    """How long its last canary waits for an answer; 0 when it was answered, nothing when none was sent."""
    engines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """engine -> what it counts, all live processes of the machine together."""
    beat: Beat | None = None
    """The last word of its newest process, with speeds, circuits and what it listens to."""

    @property
    def hung(self) -> bool:
        """It beats and has a free slot, but takes no work."""
        waits = (self.canary_age_s or 0.0) > OVERDUE_S
        return self.alive and not self.drained and waits and self.busy + self.guests < self.slots


def machines_that_differ(states: Sequence[MachineState]) -> tuple[Difference, ...]:
    """The models that live machines claim to share and have with different weights."""
    return differing(one for state in states if state.alive for one in claims(state.name, state.stages))


def as_beats_tell(machine: MachineState, beats: Sequence[Beat]) -> MachineState:
    """A machine of the configuration with what its processes said last."""
    mine = [beat for beat in beats if beat.machine == machine.name]
    if not mine:
        return machine
    newest = min(mine, key=lambda beat: beat.age_s)
    configured = [*machine.stages, *newest.stages]  # Redis keeps no order
    return MachineState(
        name=machine.name,
        role=machine.role,
        slots=newest.slots,
        stages={stage: newest.stages[stage] for stage in sorted(newest.stages, key=configured.index)},
        alive=newest.alive,
        busy=sum(beat.busy for beat in mine if beat.alive),
        guests=sum(beat.guests for beat in mine if beat.alive),
        beat_age_s=newest.age_s,
        drained=newest.drained,
        engines=_counted([beat for beat in mine if beat.alive]),
        beat=newest,
    )


def _counted(beats: Sequence[Beat]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for beat in beats:
        for engine, counters in beat.engines.items():
            sums = found.setdefault(engine, {})
            for name, value in counters.items():
                if isinstance(value, int | float):  # a beat is a stranger's word
                    sums[name] = sums.get(name, 0.0) + value
    return found
