"""Queue access of the app and the server processes: sending work, reading the machines' state.

Everything here is transport. Nothing raises when Redis is away, except `send`, whose caller retries.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from typing import Any, TypeVar, cast

from celery import Celery
from kombu.exceptions import BatchPublishError, LimitExceeded, OperationalError
from kombu.messaging import Producer
from redis.exceptions import RedisError

from grading.broker import celery_app, criterion_claims, viewers
from grading.broker.away import refuses_password, why_away
from grading.broker.canaries import Canaries, PartHeartbeat, Waiting
from grading.broker.connections import connect
from grading.broker.heartbeats import Backlog, Heartbeat, Lease
from grading.broker.kept_digests import KeptDigests
from grading.broker.leases import LEASES, Leases, result_key
from grading.broker.machine_status import MachineState, with_heartbeats
from grading.broker.signing import Keyring, keyring
from grading.config.settings import Config
from grading.domain.round_states import PRIORITIES
from grading.domain.stages import grading_stages

log = logging.getLogger(__name__)
T = TypeVar("T")
Entry = tuple[str, str]
"""A machine, and what lay in its inbox."""
DEEPEST = 8
"""Runs for each live slot that may wait in the queue of a stage that gets on more slowly than another."""
AWAY = (RedisError, OperationalError, LimitExceeded, BatchPublishError, OSError)
"""What is raised while Redis does not answer; LimitExceeded when all connections wait for one that hangs."""
MIN_OPEN_S = 1.0
MAX_OPEN_S = 15.0


class Breaker:
    """Circuit breaker of Redis: open after a failure for as long as that took, 1 to 15 s; then one caller
    probes.

    All others are refused at once. `clock` in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open_until = 0.0
        self._failed = False
        self._probing = False
        self.refused = False
        """Whether it failed because Redis does not accept the password."""

    def admits(self) -> bool:
        """Whether to ask now; who may, tells the outcome by `succeeded` or `failed`."""
        with self._lock:
            if not self._failed:
                return True
            if self._probing or self._clock() < self._open_until:
                return False
            self._probing = True
            return True

    def succeeded(self) -> None:
        """There was an answer."""
        with self._lock:
            self._failed = self._probing = self.refused = False

    def failed(self, after_s: float, *, refused: bool = False) -> None:
        """There was none, after so many seconds."""
        with self._lock:
            self.refused = refused
            self._failed, self._probing = True, False
            self._open_until = self._clock() + min(max(after_s, MIN_OPEN_S), MAX_OPEN_S)


@dataclass(frozen=True)
class Room:
    """Runs of one stage and priority that may be sent now."""

    refill: int
    """Until its queue is as full as it should be; 0 while it is full enough."""
    most: int
    """Until its queue is as long as it may be at all; 0 where no machine takes of it."""


@dataclass(frozen=True)
class Idle:
    """A machine that may take runs of a background stage."""

    machine: str
    model: str
    """With which it does the stage."""
    alike: frozenset[str]
    """All stages that it does with this model of the same engine."""
    places: int
    """Runs that it may take at once, beside those it has."""


def most_in_background(slots: int) -> int:
    """How many of a machine's slots background runs may have at once.

    One slot stays for a run of grading that comes, and those that gateway requests may have, too.
    """
    return max(1, slots - 1 - slots // 4)


@dataclass(frozen=True)
class Outgoing:
    """A run to be sent and its job, a `grading.domain.jobs.Job` as JSON."""

    run_id: str
    round_id: str
    stage: str
    priority: str
    job: Mapping[str, Any]
    submission_id: str = ""
    """For logs; travels beside the job."""
    again: bool = False
    """It was sent before and has had its turn: it is taken next."""


@dataclass(frozen=True)
class Left:
    """A result that a machine left in Redis."""

    machine: str
    run_id: str
    content: str
    """As it signed it."""
    holders: frozenset[str] = frozenset()
    """The machines that hold a lease of the run."""


@dataclass(frozen=True)
class Dispatch:
    """The producer side of the queue."""

    config: Config
    celery: Celery
    registry: Leases
    breaker: Breaker = field(default_factory=Breaker)
    """For those who only look or give notice: the sweeper finds what was not announced."""

    def announce(self, round_id: str) -> bool:
        """After the commit: say that a round waits. Best effort, the sweeper finds it otherwise."""
        return self._publish(celery_app.PREPARE, celery_app.STORE, [round_id])

    def announce_execution(self, round_id: str, priority: str, in_s: float = 0.0) -> bool:
        """After the commit: say that a round's work is to be run, now or later. Best effort, as above."""
        return self._publish(celery_app.EXECUTE, celery_app.sandbox_queue(priority), [round_id], in_s)

    def announce_precheck(self, precheck_id: str) -> bool:
        """After the commit: say that a student's code is to be run. Best effort, as above."""
        return self._publish(celery_app.PRECHECK, celery_app.SANDBOX, [precheck_id])

    def release(self) -> bool:
        """Ask for waiting rounds to be dispatched. Best effort."""
        return self._publish(celery_app.ADMIT, celery_app.STORE, [])

    def _publish(self, task: str, to: str, args: list[str], in_s: float = 0.0) -> bool:
        later = {"countdown": in_s} if in_s else {}

        def publish() -> bool:
            self.celery.send_task(task, args=args, queue=to, ignore_result=True, **later)
            return True

        return self._or(False, publish)

    def send(self, outgoing: Sequence[Outgoing], to: str = "") -> None:
        """Send runs to the queues of their stages, or all `to` another one. Raises one of AWAY."""
        sent = self.registry.make_current({(one.round_id, one.stage): one.run_id for one in outgoing})
        with self.celery.producer_or_acquire() as producer, producer.batch():
            for one in outgoing:
                self._send(one, to or celery_app.stage_queue(one.stage, one.priority), sent, producer)

    def _send(self, one: Outgoing, to: str, sent: float, producer: Producer) -> None:
        self.celery.send_task(
            celery_app.RUN,
            kwargs={"job": {**one.job, "secret": self.keys.run_secret(one.run_id)}},
            task_id=one.run_id,
            queue=to,
            headers={
                celery_app.SUBMISSION: one.submission_id,
                celery_app.SENT: round(sent, 3),
                celery_app.NEXT: one.again,
            },
            producer=producer,
            add_to_parent=False,
            ignore_result=True,
            **celery_app.unsaid(),
        )

    @cached_property
    def keys(self) -> Keyring:
        """What the secrets of runs are made of, and signatures checked with."""
        return keyring(self.config.redis.url)

    def wait_for_entry(self, wait_s: float) -> list[Entry]:
        """(machine, entry) of the first of the machines' inboxes that holds any. Raises redis errors."""
        names = {celery_app.inbox(machine.name): machine.name for machine in self.config.machines}
        found = cast("list[str] | None", self.registry.redis.brpop(list(names), timeout=wait_s))
        return [(names[found[0]], found[1])] if found else []

    def left_results(self, runs: Sequence[Entry], more: int = 0) -> tuple[list[Left], list[Entry]]:
        """What machines left as results of these (machine, run), and at most `more` entries of each inbox.

        Raises redis errors.
        """
        machines = [machine.name for machine in self.config.machines]
        with self.registry.redis.pipeline(transaction=False) as pipe:
            for name in machines if more else ():
                pipe.rpop(celery_app.inbox(name), more)
            if runs:
                pipe.mget([result_key(*run) for run in runs])
            for _, run_id in runs:
                for name in machines:
                    pipe.hexists(LEASES + name, run_id)
            answers = pipe.execute()
        entries = [(name, entry) for name in machines if more for entry in answers.pop(0) or ()]
        contents = answers.pop(0) if runs else []
        held = (answers[at : at + len(machines)] for at in range(0, len(answers), len(machines)))
        left = [
            Left(*run, content, frozenset(compress(machines, held_by)))
            for run, content, held_by in zip(runs, contents, held, strict=True)
            if content
        ]
        return left, entries

    def left_of(self, run_id: str) -> list[Left]:
        """What any machine left as a result of this run. Raises redis errors."""
        return self.left_results([(machine.name, run_id) for machine in self.config.machines])[0]

    def delete_results(self, left: Sequence[Left]) -> None:
        """They are written down, or refused. Best effort: Redis forgets them by itself."""
        keys = [result_key(one.machine, one.run_id) for one in left]
        if keys:
            self._or(0, lambda: self.registry.redis.unlink(*keys))

    def holders(self, run_id: str) -> frozenset[str]:
        """The machines that hold a lease of this run; empty when Redis is away."""
        return self._or(frozenset(), lambda: self.registry.holders(run_id))

    def leases(self, run_ids: Sequence[str]) -> dict[str, Lease]:
        """Who works on these runs; empty when Redis is away."""
        return self._or({}, lambda: self.registry.held_of(run_ids))

    def machines(self) -> list[MachineState]:
        """Every machine of the configuration, with what its processes say of themselves."""
        none: list[Heartbeat] = []
        heartbeats = self._or(none, self.registry.heartbeats)
        found = [with_heartbeats(machine, heartbeats) for machine in self._configured()]
        if not heartbeats:
            return found
        unknown: dict[str, Waiting] = {}
        waiting = self._or(
            unknown,
            lambda: Canaries(self.registry.redis).waiting([celery_app.own_queue(s.name) for s in found]),
        )
        return [
            replace(state, canary_age_s=canary.waits_s)
            if (canary := waiting.get(celery_app.own_queue(state.name)))
            else state
            for state in found
        ]

    def _configured(self) -> list[MachineState]:
        return [
            MachineState(
                m.name,
                m.role,
                m.slots,
                {s: p.model_dump(include={"engine", "model"}) for s, p in m.stages.items()},
            )
            for m in self.config.machines
        ]

    def backlog(self) -> dict[str, int] | None:
        """Messages in each queue; nothing when Redis is away."""
        names = [
            *celery_app.stage_queues(list(self.config.stages)),
            celery_app.STORE,
            *celery_app.SANDBOX_QUEUES,
        ]
        inboxes = [celery_app.inbox(machine.name) for machine in self.config.machines]
        lengths = self._or(None, lambda: self.registry.lengths([*names, *inboxes]))
        if lengths is None:
            return None
        # the same process reads both
        results = sum(lengths[name] for name in inboxes)
        return {
            **{name: lengths[name] for name in names},
            celery_app.STORE: lengths[celery_app.STORE] + results,
        }

    def clock(self) -> float | None:
        """Redis' time in seconds since 1970; nothing when it is away."""
        return self._or(None, self.registry.time)

    def parts(self) -> list[PartHeartbeat]:
        """The last heartbeat of every server process; empty when Redis is away."""
        none: list[PartHeartbeat] = []
        return self._or(none, Canaries(self.registry.redis).parts)

    def view(self, submission_id: str, user_id: int) -> tuple[int, ...]:
        """Record that a user views a submission; the others who do, nobody when Redis is away."""
        return self._or((), lambda: viewers.view(self.registry.redis, submission_id, user_id))

    def claim_criterion(
        self, assignment_id: int, criterion: str, user_id: int, submissions: Sequence[str]
    ) -> str | None:
        """Claim the first of these that nobody else grades now; when Redis is away, the first."""
        return self._or(
            submissions[0] if submissions else None,
            lambda: criterion_claims.claim(
                self.registry.redis, assignment_id, criterion, user_id, submissions
            ),
        )

    def password_refused(self) -> bool:
        """Whether Redis counts as away because it does not accept the password."""
        return self.breaker.refused

    def room(self) -> dict[tuple[str, str], Room]:
        """For each stage and priority, how many more runs may be sent now.

        Queues are filled up to twice what live machines take of it at once, when they fell to half of that:
        machines never wait for work, and it is sent a few rounds at a time. What one priority has sent takes
        no room from the other. Raises redis errors, also when Redis only answers and takes nothing more: then
        nothing may be begun.
        """
        stages = grading_stages(self.config.stages)
        lengths, heartbeats = self.registry.load(celery_app.stage_queues(list(stages)), writable=True)
        free = {}
        for stage in stages:
            for priority in PRIORITIES:
                slots = sum(_takes(heartbeat, stage, priority) for heartbeat in heartbeats)
                free[stage, priority] = _room(slots, lengths[celery_app.stage_queue(stage, priority)])
        return free

    def idle(self, stage: str) -> list[Idle]:
        """Machines that do this stage and have no run of grading in hand, where none waits in any queue.

        Raises redis errors.
        """
        queues = celery_app.stage_queues(list(grading_stages(self.config.stages)))
        own = {machine.name: celery_app.own_queue(machine.name) for machine in self.config.machines}
        lengths, heartbeats = self.registry.load([*queues, *own.values()], writable=True)
        if any(lengths[queue] for queue in queues):
            return []
        hand: dict[str, list[str]] = {}
        for lease in self.registry.held():
            hand.setdefault(lease.machine, []).append(lease.stage)
        found = {}
        for heartbeat in heartbeats:
            theirs = hand.get(heartbeat.machine, [])
            if _takes(heartbeat, stage, "batch") and not grading_stages(theirs) and heartbeat.machine in own:
                places = most_in_background(heartbeat.slots) - len(theirs) - lengths[own[heartbeat.machine]]
                model, alike = heartbeat.stages[stage].get("model", ""), _alike(heartbeat, stage)
                found[heartbeat.machine] = Idle(heartbeat.machine, model, alike, max(0, places))
        return list(found.values())

    def tell_backlog(self, runs: Mapping[tuple[str, str], int]) -> None:
        """Tell machines how many runs of each stage and priority still wait in SQL. Raises redis errors."""
        Backlog(self.registry.redis).tell(runs)

    def tell_out(self, machines: Iterable[str]) -> bool:
        """Tell machines which of them are out. False while Redis is away: the sweeper tells it then."""
        try:
            self.registry.drain(machines)
        except AWAY as error:
            self.breaker.failed(0.0, refused=refuses_password(error))
            return False
        return True

    def accept_models(self, machine: str) -> int:
        """Let a machine keep the weights that its models have now; how many models. Raises redis errors."""
        return KeptDigests(self.registry.redis, machine).forget()

    def _or(self, otherwise: T, read: Callable[[], T]) -> T:
        if not self.breaker.admits():
            return otherwise
        begun = time.monotonic()
        try:
            answer = read()
        except AWAY as error:
            self.breaker.failed(time.monotonic() - begun, refused=refuses_password(error))
            log.warning("%s: %s", why_away(error), error)
            return otherwise
        except BaseException:
            self.breaker.succeeded()  # it did answer
            raise
        self.breaker.succeeded()
        return answer


def open_leases(config: Config) -> Leases:
    """Claims, leases and heartbeats of the configured machines; connects at the first use."""
    return Leases(connect(config.redis.url), [machine.name for machine in config.machines])


def open_dispatch(config: Config) -> Dispatch:
    """The producer side for a configuration; connects at the first use."""
    app = celery_app.celery_app(config.redis.url, config.redis.visibility_timeout_s)
    return Dispatch(config, app, open_leases(config))


def _takes(heartbeat: Heartbeat, stage: str, priority: str) -> int:
    """Runs of a stage and priority that a process takes at once; those of an earlier version say less."""
    place = heartbeat.stages.get(stage)
    if place is None or not heartbeat.alive or heartbeat.drained:
        return 0
    if heartbeat.reserved == "testing" or (heartbeat.reserved == "batch" and priority != "batch"):
        return 0
    return 0 if stage in heartbeat.broken else heartbeat.limit or heartbeat.slots


def _alike(heartbeat: Heartbeat, stage: str) -> frozenset[str]:
    """Stages that the same model of the same engine does."""
    places = {name: (place.get("engine"), place.get("model")) for name, place in heartbeat.stages.items()}
    return frozenset(name for name, place in places.items() if place == places[stage])


def _room(slots: int, waiting: int) -> Room:
    target = 2 * slots
    return Room(
        target - waiting if waiting <= target / 2 else 0,
        max(0, DEEPEST * slots - waiting),
    )
