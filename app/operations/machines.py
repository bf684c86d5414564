"""The machines as staff see them, on pages and through the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from app.web.eta import expecting
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import ngettext, number, render_message, whole
from app.web.services import services
from app.web.template_helpers import title_of
from grading.broker import machine_status
from grading.broker.machine_status import (
    USUAL,
    CircuitTold,
    Condition,
    MachineState,
    changed_models,
    condition,
    machines_that_differ,
)
from grading.domain.model_digests import Change, Difference, WeightsWarning
from grading.store.reporting import operations
from grading.store.reporting.operations import RecentRun, list_recent_runs
from grading.store.tables import ParityAlarm, StageDrain
from grading.store.trust import parity, stage_drains

SLOW = 0.75
"""Below this part of its usual speed a machine is called slow."""
WORDS = {
    "up": (N_("up"), "good", N_("Accepts work.")),
    "slow": (N_("slow"), "warn", N_("Slower than usual, so it receives less work.")),
    "broken": (N_("degraded"), "warn", N_("An engine is unavailable (circuit breaker open).")),
    "out": (N_("drained"), "warn", N_("Drained by an operator.")),
    "hung": (N_("hung"), "bad", N_("Sends heartbeats but accepts no work. Restart it.")),
    "down": (N_("down"), "bad", N_("No recent heartbeat. Other machines take over its work.")),
}
"""How a machine is -> a word for it, how it is marked, a sentence."""
RESERVED = {
    "batch": N_("Accepts batch work only."),
    "testing": N_("Accepts only work that is sent to it directly."),
}


@dataclass(frozen=True)
class MachineDetails:
    """A machine, how it is, and what it did last."""

    state: MachineState
    condition: Condition
    last: Sequence[RecentRun]
    drained_why: str = ""
    out: bool = False
    """An operator took it out, whether it has heard of that yet or not."""

    @property
    def word(self) -> str:
        """How it is, in one word."""
        state = self.state
        if state.hung:
            return "hung"
        if state.drained:
            return "out"
        if not state.alive:
            return "down"
        health = self.condition.health
        slow = health is not None and health < SLOW
        return "broken" if self.condition.circuits else "slow" if slow else "up"


@dataclass(frozen=True)
class ClusterState:
    """All of them, and what waits."""

    machines: Sequence[MachineDetails]
    queues: Mapping[str, int] | None
    """Messages in each queue; nothing while Redis is away."""
    waiting: Mapping[str, int]
    """priority -> submissions in the database that were not sent."""
    differences: Sequence[Difference]
    changes: Sequence[Change] = ()
    """Models with other weights than before."""
    alarms: Sequence[ParityAlarm] = ()
    """Machines that grade golden submissions otherwise."""
    drained_stages: Mapping[tuple[str, str], StageDrain] = field(default_factory=dict)

    @property
    def weights_warnings(self) -> tuple[WeightsWarning, ...]:
        """Both, the worst first."""
        return (*self.changes, *self.differences)


def look() -> ClusterState:
    """What Redis and the database tell now."""
    with services().store.read_autocommit() as session:
        return look_in(session)


def look_in(session: Session) -> ClusterState:
    """The same, where the database is being looked at already."""
    app_services = services()
    reasons, last = operations.list_drained(session), list_recent_runs(session)
    waiting = expecting().waiting(session)
    states = app_services.dispatch.machines()
    machines = [
        MachineDetails(state, condition(state), last.get(one, ()), reasons.get(one, ""), out=one in reasons)
        for one, state in ((state.name, state) for state in states)
    ]
    return ClusterState(
        machines,
        app_services.dispatch.backlog(),
        waiting,
        machines_that_differ(states),
        changed_models(states),
        parity.list_alarms(session),
        stage_drains.list_drains(session),
    )


def an_hour(rate: float) -> str:
    """Jobs an hour, no finer and no further than anybody can want to know."""
    if rate > machine_status.MOST_AN_HOUR:
        return _("over %(count)s", count=whole(machine_status.MOST_AN_HOUR))
    return whole(rate) if rate >= machine_status.FEW_AN_HOUR else number(round(rate, 1))


def duration(seconds: float) -> str:
    """Whole seconds of a job, without their unit."""
    return whole(seconds) if seconds >= 1 else _("under 1")


def span(seconds: float) -> str:
    """So many seconds, minutes or hours, whose unit stays beside its number."""
    return machine_status.span(seconds).replace(" ", "\N{NO-BREAK SPACE}")


def machine_word(word: str) -> tuple[str, str, str]:
    """The word, its mark and the sentence."""
    label, mark, sentence = WORDS[word]
    return _(label), mark, _(sentence)


def machine_notes(how: Condition) -> list[str]:
    """What is out of the ordinary, a sentence each."""
    return list(_notes(how))


def _notes(how: Condition) -> Iterator[str]:
    if how.health is not None and abs(how.health - 1.0) > USUAL:
        yield _("Runs at %(part)s %% of its usual speed.", part=f"{100 * how.health:.0f}")
    yield from (_circuit(one) for one in how.circuits)
    for stage, seconds in how.loading_s.items():
        yield _(
            "The model for %(stage)s is not loaded. Loading takes about %(time)s.",
            stage=title_of(stage),
            time=span(seconds),
        )
    if how.reserved in RESERVED:
        yield _(RESERVED[how.reserved])


def _circuit(one: CircuitTold) -> str:
    """An engine without work, and why."""
    what = f"{one.engine} ({', '.join(one.stages)})" if one.stages else one.engine
    if one.state == "probing":
        doing = _("%(engine)s: circuit breaker half-open", engine=what)
    elif one.since_s:
        doing = _("%(engine)s: circuit breaker open for %(time)s", engine=what, time=span(one.since_s))
    else:
        doing = _("%(engine)s: circuit breaker open", engine=what)
    why = render_message(one.why).rstrip(".")
    return f"{doing}: {why}." if why else f"{doing}."


def gateway_requests(count: int) -> str:
    """Requests of other tools in hand."""
    return ngettext("%(count)s gateway request", "%(count)s gateway requests", count) if count else ""
