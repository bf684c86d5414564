"""A circuit breaker: whether a machine's engine is asked for more, by what came of the last runs there.

Closed: it is. Open: it is not, until a probe finds it well. Probing: that probe is under way. Pure; `now` and
`began` are seconds of one clock that never goes back, `draw` is a random number from 0 to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from grading.domain.errors import (
    BudgetExceeded,
    EngineBrokeOff,
    EngineError,
    EngineGarbled,
    EngineStalled,
    EngineUnreachable,
    ModelMissing,
)
from grading.domain.messages import Message

State = Literal["closed", "open", "probing"]
Verdict = Literal["well", "neither", "against", "away"]
"""What the end of a run says of its engine: away is one that every other run there would meet, too."""

AWAY = frozenset({EngineUnreachable.code, ModelMissing.code})
AGAINST = frozenset({EngineError.code, EngineStalled.code, EngineBrokeOff.code, EngineGarbled.code})


@dataclass(frozen=True)
class Rules:
    """When a circuit opens, and how long it is open. Durations in seconds."""

    in_a_row: int = 3
    """So many failures one after the other open it."""
    last: int = 10
    within_s: float = 600.0
    """Or half of so many runs that ended so lately: a run may take its whole budget."""
    first_s: float = 5.0
    most_s: float = 60.0
    """From opening to the first probe, doubled for each one that fails, up to this."""
    jitter: float = 0.2
    """At most this share of a wait is left out, so that machines of one server do not ask together."""

    def wait_s(self, openings: int, draw: float) -> float:
        """Before the next probe, when it was found broken so many times without a good run in between."""
        whole = min(self.most_s, self.first_s * 2.0 ** min(openings - 1, 30))
        return whole * (1.0 - self.jitter * draw)


RULES = Rules()


NO_REASON = Message()


@dataclass(frozen=True)
class Circuit:
    """The circuit of one model on one engine of one machine. What happens to it gives the next one."""

    rules: Rules = RULES
    state: State = "closed"
    why: Message = NO_REASON
    """The last failure, with what to do; empty while closed."""
    since: float = -math.inf
    """When it last left `closed`, or came back to it."""
    due: float = math.inf
    """When the next probe may begin; only while open."""
    failures: int = 0
    """Found broken so many times, by runs or probes, without a good run in between."""
    recent: tuple[tuple[float, bool], ...] = field(default=(), repr=False)
    """(when, whether well) of the last runs that said something, newest last."""

    @property
    def closed(self) -> bool:
        """Whether it takes work."""
        return self.state == "closed"

    def ended(
        self, verdict: Verdict, began: float, now: float, draw: float, why: Message = NO_REASON
    ) -> Circuit:
        """A run came to its end.

        One that had begun before the circuit last changed says nothing of the engine since, but while it is
        open a good end is a reason to probe now.
        """
        if verdict == "neither":
            return self
        if self.state == "open" and verdict == "well":
            return replace(self, due=min(self.due, now))
        if self.state != "closed" or began < self.since:
            return self
        half_open = self.failures > 0
        recent = self._lately(now, verdict == "well")
        if verdict == "well":
            return replace(self, recent=recent, failures=0)
        if verdict == "away" or half_open or self._too_many(recent):
            return self._open(now, draw, why)
        return replace(self, recent=recent)

    def probe(self, now: float) -> Circuit:
        """Begin a probe if it is time for one; else the same circuit."""
        due = self.state == "open" and now >= self.due
        return replace(self, state="probing", due=math.inf) if due else self

    def answered(self, now: float) -> Circuit:
        """The probe was answered: it is half-open until a run ends well."""
        if self.state != "probing":
            return self
        return replace(self, state="closed", why=NO_REASON, since=now, recent=())

    def unanswered(self, now: float, draw: float, why: Message) -> Circuit:
        """The probe failed: it is open for longer."""
        return self._open(now, draw, why) if self.state == "probing" else self

    def _lately(self, now: float, well: bool) -> tuple[tuple[float, bool], ...]:
        kept = [one for one in self.recent if one[0] > now - self.rules.within_s]
        return (*kept, (now, well))[-self.rules.last :]

    def _too_many(self, recent: tuple[tuple[float, bool], ...]) -> bool:
        ends = [well for _, well in recent]
        in_a_row = len(ends) >= self.rules.in_a_row and not any(ends[-self.rules.in_a_row :])
        return in_a_row or (len(ends) == self.rules.last and 2 * ends.count(False) >= len(ends))

    def _open(self, now: float, draw: float, why: Message) -> Circuit:
        failures = self.failures + 1
        return replace(
            self,
            state="open",
            why=why,
            since=now if self.state == "closed" else self.since,
            due=now + self.rules.wait_s(failures, draw),
            failures=failures,
            recent=(),
        )


def verdict(error: str | None, tokens: int, phase: str) -> Verdict:
    """What the end of a run says of its engine, by its error code, its output tokens and its last phase.

    An answer that is too long, empty or no JSON is the model's or the work's, and shows an engine that
    works. A budget that ran out without a single token, and not in a queue, is an engine that hangs. One that
    ran out while tokens came, a full queue, a job nobody can do and a run that was called off say nothing
    either way.
    """
    if error is None:
        return "well"
    if error in AWAY:
        return "away"
    silent = tokens == 0 and phase != "queued"
    if error in AGAINST or (error == BudgetExceeded.code and silent):
        return "against"
    return "well" if error.startswith("output_") else "neither"
