"""The overview page of operations: faults with remedies, queues, runs, live processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.operations.machines import ClusterState, look_in, span
from app.operations.metrics import data_folder
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import ngettext, when, whole
from app.web.platform_pages import platform_pages
from app.web.services import Services, services
from app.web.template_helpers import title_of
from grading.broker.canaries import PartHeartbeat, rate_of_checks
from grading.broker.heartbeats import Lease
from grading.domain.permissions import Actor
from grading.domain.round_states import RoundState
from grading.domain.stages import grading_stages
from grading.execution.throughput import seconds_until_checked
from grading.store import Store
from grading.store.accounts import second_factor
from grading.store.accounts.second_factor import BreakGlassSignIn
from grading.store.reporting import metrics, operations
from grading.store.reporting.metrics import Waiting
from grading.store.reporting.operations import Figures, RunInFlight
from grading.store.reporting.replication import BEHIND_BYTES, Replication, load_replication

LONG_S = 60.0
"""So long a wait for the sandbox is told."""
LITTLE_ROOM = 0.1
"""Below this part of the disk free it is said."""
PARTS = {
    "store": (N_("Store"), N_("writes results and grades")),
    "sweeper": (N_("Sweeper"), N_("recovers lost work and sends events")),
    "sandbox": (N_("Sandbox"), N_("runs students' work in a sandbox")),
}
PART_COMMANDS = {"store": "grader store", "sweeper": "grader sweep", "sandbox": "grader sandbox"}
KINDS = {
    "prepare": N_("Submissions to prepare"),
    "execute": N_("Work to run"),
    "event": N_("Events to deliver"),
    "mail": N_("Emails"),
}
PHASES = {
    "waiting": N_("queued"),
    "queued": N_("queued"),
    "starting": N_("starting"),
    "loading": N_("loading the model"),
    "reading": N_("reading"),
    "generating": N_("generating"),
}


@dataclass(frozen=True)
class Trouble:
    """Something that is not as it should be, and what to do; `grave` where grading stands still."""

    what: str
    advice: str
    grave: bool = False
    endpoint: str = ""


@dataclass(frozen=True)
class Part:
    """A kind of server process."""

    name: str
    title: str
    does: str
    processes: Sequence[PartHeartbeat]

    @property
    def alive(self) -> int:
        """How many of it live."""
        return sum(one.alive for one in self.processes)


@dataclass(frozen=True)
class Working:
    """A run that is out, and what its machine says of it; nothing while none has taken it."""

    run: RunInFlight
    lease: Lease | None
    visible: bool
    """Whether the reader may see whose it is."""

    @property
    def phase(self) -> str:
        """In a word."""
        return _("queued") if self.lease is None else _(PHASES.get(self.lease.phase, ""))


@dataclass(frozen=True)
class Backlog:
    """Submissions in one state, by priority."""

    title: str
    interactive: metrics.Waiting
    batch: metrics.Waiting


@dataclass(frozen=True)
class Room:
    """Bytes on the disk the database or the uploads are on."""

    free: int
    total: int

    @property
    def little(self) -> bool:
        """Whether it is time to make room."""
        return self.free < LITTLE_ROOM * self.total


@dataclass(frozen=True)
class Overview:
    """All of it."""

    troubles: Sequence[Trouble]
    cluster: ClusterState
    backlog: Sequence[Backlog]
    outbox: Mapping[str, Waiting]
    working: Sequence[Working]
    working_total: int
    parts: Sequence[Part]
    dead_rounds: int
    dead: Mapping[str, int]
    database: str
    database_bytes: int
    room: Room


def overview(actor: Actor) -> Overview:
    """As this member of staff may see it."""
    app_services = services()
    parts = _parts(app_services)
    with app_services.store.read_autocommit() as session:
        states = look_in(session)
        figures = operations.load_figures(session, actor.staff_courses)
        runs, total = operations.list_runs_in_flight(session)
        size, kind = operations.database_bytes(session), session.get_bind().dialect.name
        broken_glass = second_factor.recent_break_glass(session) if actor.administrator else ()
    leases = app_services.dispatch.leases([run.run_id for run in runs]) if runs else {}
    room = _room(app_services)
    troubles = [*_troubles(states, parts, room), *_slow_sandbox(figures, parts), *_to_look_at(actor, figures)]
    troubles += _replication_troubles(app_services.store)
    troubles += (_break_glass(one) for one in broken_glass)
    return Overview(
        troubles=sorted(troubles, key=lambda one: not one.grave),
        cluster=states,
        backlog=_backlog(figures.rounds),
        outbox=figures.outbox,
        working=[Working(run, leases.get(run.run_id), actor.staff_in(run.course_id)) for run in runs],
        working_total=total,
        parts=parts,
        dead_rounds=figures.dead_rounds,
        dead=figures.dead,
        database="PostgreSQL" if kind == "postgresql" else "SQLite",
        database_bytes=size,
        room=room,
    )


def kind_title(kind: str) -> str:
    """A kind of messages in words; those to a receiver of events bear its name."""
    titles = dict(KINDS)
    for pages in platform_pages().values():
        titles |= pages.deliveries
    if kind in titles:
        return _(titles[kind])
    return _("Events for %(name)s", name=kind.partition(":")[2]) if kind.startswith("to:") else kind


def _backlog(found: Mapping[tuple[str, str], Waiting]) -> list[Backlog]:
    titles = {
        RoundState.RECEIVED: _("Received"),
        RoundState.QUEUED: _("Queued"),
        RoundState.RUNNING: _("Being graded"),
    }
    return [
        Backlog(title, found[state.value, "interactive"], found[state.value, "batch"])
        for state, title in titles.items()
    ]


def _parts(services: Services) -> list[Part]:
    heartbeats = services.dispatch.parts()
    wanted = [name for name in PARTS if name != "sandbox" or services.config.sandbox.backend != "none"]
    return [
        Part(name, _(PARTS[name][0]), _(PARTS[name][1]), [one for one in heartbeats if one.part == name])
        for name in wanted
    ]


def _room(services: Services) -> Room:
    usage = shutil.disk_usage(data_folder(services))
    return Room(usage.free, usage.total)


def _troubles(states: ClusterState, parts: Sequence[Part], room: Room) -> Iterator[Trouble]:
    if states.queues is None and services().dispatch.password_refused():
        yield Trouble(
            _("Redis refuses the password."),
            _(
                "Submissions are queued in the database. Correct GRADER_REDIS_URL for every service, "
                "then restart the services."
            ),
            grave=True,
        )
    elif states.queues is None:
        yield Trouble(
            _("Redis is not reachable."),
            _(
                "Submissions are still accepted and queued in the database. Restart Redis; nothing "
                "else is needed."
            ),
            grave=True,
        )
    else:
        yield from (_silent(part) for part in parts if not part.alive)
        yield from _machine_troubles(states)
    if room.little:
        free = whole(room.free / 1024**3)
        yield Trouble(
            _("The disk is nearly full: %(free)s GB are free.", free=free),
            _("Free disk space, or set shorter retention times under [retention] in config.toml."),
            grave=room.free < 1024**3,
        )


def _silent(part: Part) -> Trouble:
    command = PART_COMMANDS[part.name]
    return Trouble(
        _("No “%(part)s” process is running. It %(does)s.", part=part.title, does=part.does),
        _("Start it with %(command)s and check its log.", command=f"`{command}`"),
        grave=part.name != "sandbox",
    )


def _slow_sandbox(figures: Figures, parts: Sequence[Part]) -> Iterator[Trouble]:
    """Where more wait for the sandbox than for machines, and not for a moment only."""
    rate = rate_of_checks([heartbeat for part in parts for heartbeat in part.processes])
    waiting = figures.outbox["execute"].count
    queued = sum(one.count for (state, _), one in figures.rounds.items() if state == RoundState.QUEUED)
    left_s = seconds_until_checked(waiting, rate.slots, rate.seconds) if rate else 0.0
    if rate is None or left_s < LONG_S or waiting <= queued:
        return
    yield Trouble(
        ngettext(
            "A submission is queued for the sandbox, for about %(time)s.",
            "%(count)s submissions are queued for the sandbox, the last for about %(time)s.",
            waiting,
            time=span(left_s),
        ),
        _(
            "The sandbox runs %(slots)s submissions at a time, %(seconds)s each. Add cores, or use "
            "fewer and shorter tests.",
            slots=whole(rate.slots),
            seconds=span(rate.seconds),
        ),
    )


def _machine_troubles(states: ClusterState) -> Iterator[Trouble]:
    works = [one for one in states.machines if one.word in ("up", "slow", "broken")]
    for stage in sorted(grading_stages({stage for one in states.machines for stage in one.state.stages})):
        if not any(stage in one.state.stages for one in works):
            yield Trouble(
                _("No machine is available for “%(stage)s”.", stage=title_of(stage)),
                _("Submissions are queued until a machine is back. Check the machines."),
                grave=True,
                endpoint="operations.machines",
            )
    names = [one.state.name for one in states.machines if one.word in ("down", "hung", "broken")]
    if names:
        yield Trouble(
            ngettext(
                "A machine needs attention: %(names)s.",
                "%(count)s machines need attention: %(names)s.",
                len(names),
                names=", ".join(names),
            ),
            _("The Machines page shows the cause for each."),
            endpoint="operations.machines",
        )  # fmt: skip
    yield from _weights_troubles(states)


def _weights_troubles(states: ClusterState) -> Iterator[Trouble]:
    """Weights that changed on a machine, and that differ between machines."""
    if states.changes:
        yield Trouble(
            _(
                "A model has other weights than before: %(names)s. It gets no work.",
                names=", ".join(sorted({f"{one.model} ({one.machine})" for one in states.changes})),
            ),
            _("The Machines page shows what to do."),
            grave=True,
            endpoint="operations.machines",
        )
    if states.differences:
        yield Trouble(
            _(
                "Machines have different model weights under the same name, so their grades are not "
                "comparable."
            ),
            _("The Machines page shows which ones and what to do."),
            endpoint="operations.machines",
        )


def _replication_troubles(store: Store) -> Iterator[Trouble]:
    """What takes a successor from PostgreSQL, or fills its disk; nothing of SQLite."""
    found = load_replication(store)
    if found is None:
        return
    if found.blocked:
        yield Trouble(
            _("Nothing can be stored: PostgreSQL waits for a synchronous replica, and none is connected."),
            _(
                "Start the replica. If that takes long, run %(command)s on the primary, then reload its "
                "settings.",
                command="`ALTER SYSTEM RESET synchronous_standby_names`",
            ),
            grave=True,
        )
    yield from _replica_troubles(found)
    if found.failing:
        yield Trouble(
            _("PostgreSQL cannot archive its log, which fills the disk."),
            _("The log of PostgreSQL shows the reason. Then run %(command)s.", command="`pgbackrest check`"),
        )


def _replica_troubles(found: Replication) -> Iterator[Trouble]:
    away = [one.name for one in found.slots if one.idle and not one.lost]
    lost = [one.name for one in found.slots if one.idle and one.lost]
    if lost:
        yield Trouble(
            _(
                "A replica of PostgreSQL needs a part of the log that is removed: %(names)s.",
                names=", ".join(lost),
            ),
            _("It cannot follow any more. Make the replica again, or drop its replication slot."),
        )
    if away:
        yield Trouble(
            _("A replica of PostgreSQL is not connected: %(names)s.", names=", ".join(away)),
            _(
                "The primary keeps its log for it, which fills the disk. Start the replica, or drop its "
                "replication slot."
            ),
        )
    elif found.missing and not lost:
        yield Trouble(
            _("No replica of PostgreSQL is connected."),
            _("Nothing takes over if the primary fails. Start the replica."),
        )
    if late := [name for name, behind in found.lags.items() if behind > BEHIND_BYTES]:
        yield Trouble(
            _("A replica of PostgreSQL is behind: %(names)s.", names=", ".join(late)),
            _("If the primary fails now, more is lost. Check the replica's disk, its load and its network."),
        )


def _break_glass(one: BreakGlassSignIn) -> Trouble:
    return Trouble(
        _("%(name)s signed in with a break-glass account: %(at)s.", name=one.name, at=when(one.at)),
        _("Make sure that this person did it. It is shown for a week and stays in the audit log."),
        endpoint="audit.everything",
    )


def _to_look_at(actor: Actor, figures: Figures) -> Iterator[Trouble]:
    if dead_rounds := figures.dead_rounds:
        yield Trouble(
            ngettext(
                "Grading failed for one submission.",
                "Grading failed for %(count)s submissions, completely or in part.",
                dead_rounds,
            ),
            _("Check the reason, fix the cause, then retry. Nothing is lost."),
            endpoint="submissions.failed",
        )
    if actor.administrator and figures.paused:
        yield Trouble(
            _("Paused event receivers: %(names)s.", names=", ".join(figures.paused)),
            _("Deliveries failed for two days. Messages are kept. Check the responses, then resume."),
            endpoint="deliveries.list_deliveries",
        )
    if actor.administrator and figures.dead:
        count = sum(figures.dead.values())
        yield Trouble(
            ngettext("A message could not be sent.", "%(count)s messages could not be sent.", count),
            _("Check the receivers' responses, then resend."),
            endpoint="operations.messages",
        )
