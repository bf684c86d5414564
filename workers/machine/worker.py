"""One worker process beside a model: takes jobs, holds leases, sends heartbeats and results."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import ValidationError
from redis.exceptions import RedisError

from grading.broker.away import why_away
from grading.broker.heartbeats import HEARTBEAT_S, Heartbeat, reason
from grading.broker.kept_digests import KeptDigests
from grading.broker.leases import Leases
from grading.broker.part_heartbeats import me
from grading.config.settings import EngineSettings, Machine
from grading.domain import messages
from grading.domain.jobs import Job, Provenance, Result, read_job
from grading.domain.stages import grading_stages, is_background
from grading.scheduling.circuit_breaker import RULES, Rules
from grading.scheduling.cluster_view import RoutingFacts
from grading.shared.code_version import code_folder
from grading.shared.telemetry import outcome, span, working_on
from workers.machine import results
from workers.machine.active_run import Message, RunInHand
from workers.machine.circuits import CircuitBreakers
from workers.machine.claims import Claims
from workers.machine.engines.base import Engine, ReportsUnavailability, knows_loading
from workers.machine.model_digests import ModelDigests, Place, WeightsCheck, counters, metric_types
from workers.machine.progress import ProgressReports
from workers.machine.requeue import Requeue
from workers.machine.results import Send, SentResults, offer, without_prompt
from workers.machine.scheduling.shared_exclusive_lock import Gate
from workers.machine.scheduling.throughput import ThroughputLearner
from workers.machine.stages.run import run_stage

log = logging.getLogger(__name__)


@dataclass
class MachineProcess:
    """A machine's engines and what it does with a job. `send` publishes a result to the server.

    `listen` is called with False when the machine was drained and with True when it is back.
    """

    machine: Machine
    engines: Mapping[str, Engine]
    leases: Leases
    send: Send
    process: str = field(default_factory=lambda: uuid.uuid4().hex)
    stop: threading.Event = field(default_factory=threading.Event)
    listen: Callable[[bool], None] = lambda _open: None
    look_again: Callable[[], None] = lambda: None
    """Called when an engine went away or came back."""
    circuit_rules: Rules = RULES
    chosen: Callable[[], tuple[Sequence[str], messages.Message]] = lambda: ((), messages.Message())
    """The queues it listens to now, and why; for others to see."""
    gateway_requests: Callable[[], int] = lambda: 0
    """How many slots gateway requests have; for others to see."""
    gateway_queues: Collection[str] = ()
    """By which they come."""
    sent: SentResults | None = None
    """Remembers results of the last minutes, where Redis has a successor."""
    drained: bool = False
    stopping: bool = False
    gate: Gate = field(default_factory=Gate)
    _working: dict[str, RunInHand] = field(default_factory=dict)
    _placing: dict[int, str] = field(default_factory=dict)
    """Stages of runs that are being claimed: they take a slot, unless they belong elsewhere."""
    _left: threading.Condition = field(default_factory=threading.Condition)
    """Notified when a run is out of hand."""

    def __post_init__(self) -> None:
        kept = KeptDigests(self.leases.redis, self.machine.name)
        self.model_digests = ModelDigests(self.machine, self.engines, kept, self._weights_changed)
        self.circuits = CircuitBreakers(
            self.machine,
            self.engines,
            self._circuits_changed,
            self.circuit_rules,
            verify=self.model_digests.verify,
        )
        for name, engine in self.engines.items():
            if isinstance(engine, ReportsUnavailability):
                engine.on_unavailable(partial(self.circuits.lost, name))
        self.claiming = Claims(self.leases, self.machine.name, self.process)
        self.returns = Requeue(self.leases, self.circuits, self.machine.name, self.process)
        self.throughput = ThroughputLearner(
            self.machine,
            self.leases.redis,
            lambda: list(self._working.values()),
            unsure={name for name, engine in self.engines.items() if not knows_loading(engine)},
        )
        self.telling = ProgressReports(self.leases, lambda: list(self._working.values()), self.claiming.lease)

    def run(self, raw: Mapping[str, Any], message: Message | None = None) -> dict[str, Any] | None:
        """Do a job, send its result at once, and return it. Raises nothing for bad work.

        None when the run was handed on to another machine or back to its queue, by `message`.
        """
        try:
            job = read_job(raw)
        except ValidationError as error:
            log.error(
                "a message was rejected: it is not a valid job, %d validation errors", error.error_count()
            )
            return self._refuse(raw)
        with working_on(round=job.round_id, run=job.run_id, stage=job.stage):
            return self._run(job, message)

    def _run(self, job: Job, message: Message | None) -> dict[str, Any] | None:
        if self.returns.unasked(job.stage, message):
            return None
        if not is_background(job.stage):
            self.give_way()
        admitted = self.gate.enter_now(alone=job.alone)
        working = RunInHand(job, message, "starting" if admitted else "waiting", changed=self.telling.changed)
        try:
            self._placing[id(working)] = job.stage
            answer = self.claiming.place(working)
            if answer == "elsewhere":
                return None
            if answer == "superseded":
                return {"superseded": job.run_id}
            working.leased = working.leased and answer != "exhausted"  # then there is none to be taken away
            self._working[job.run_id] = working
            self._placing.pop(id(working), None)
            if grading_stages(self.in_hand()):
                self.give_way()  # also this run, where grading came before it
            if not admitted and answer != "exhausted":
                admitted = self.gate.enter(alone=job.alone, cancel=working.cancel)
                self.returns.call_off([working])  # its engine may have gone while it waited
                if working.cancel.cancelled or not self._begin(working):
                    return self.returns.unfinished(working)
            return self._finish(working, exhausted=answer == "exhausted")
        finally:
            self._placing.pop(id(working), None)
            with self._left:
                if self._working.get(job.run_id) is working:  # not that of the same message, come twice
                    del self._working[job.run_id]
                self._left.notify_all()
            if admitted:
                self.gate.leave()

    def _finish(self, working: RunInHand, *, exhausted: bool) -> dict[str, Any] | None:
        """Work, send the result and end the lease; only a run whose result was sent is over."""
        job = working.job
        try:
            with span("run", job.round_id, job.run_id) as say:
                result = (
                    results.exhausted(job, self._provenance(job.stage)) if exhausted else self._work(working)
                )
                say(outcome(result))
            if working.cancel.cancelled and not result.ok:
                return self.returns.unfinished(working)
            if self.returns.refused(working, result):
                return None
            self._log(job, result)
            content = result.model_dump(mode="json")
            self._offer(content, job.secret)
        except BaseException:
            self.claiming.give_back(working)
            raise
        self.claiming.finish(working)
        if self.sent:
            self.sent.remember(partial(self._send_again, content, working))
        if working.handed_back:
            return None  # done after all; the message that is on its way will find it over
        return without_prompt(result)

    def _work(self, working: RunInHand) -> Result:
        job = working.job
        placement = self.machine.stages.get(job.stage)
        if placement is None:
            return results.not_here(job, self._provenance(job.stage))
        settings = self.machine.engines.get(placement.engine)
        began = self.circuits.now()
        self.throughput.look()
        result = run_stage(
            job,
            self.engines[placement.engine],
            placement.model,
            self.machine.name,
            progress=working.moved,
            context_tokens=(settings or EngineSettings()).context_tokens,
            on_prompt=working.prompted,
            cancel=working.cancel,
            weights=WeightsCheck(self.model_digests, placement.place),
        )
        self.circuits.ended(result, began, working.tokens, working.phase)
        self.throughput.ended(working, result)
        return result

    def _log(self, job: Job, result: Result) -> None:
        said, took = "done" if result.ok else result.error, result.provenance.seconds
        log.info("run %s, %s of round %s: %s after %.1f s", job.run_id, job.stage, job.round_id, said, took)

    def _refuse(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a message that is no job: as a failed run, if it says which, so that nobody waits."""
        run_id, round_id, stage = (raw.get(key) for key in ("run_id", "round_id", "stage"))
        if not (isinstance(run_id, str) and isinstance(round_id, str) and isinstance(stage, str)):
            return {"refused": "not a job"}
        result = results.not_understood(run_id, round_id, stage, self._provenance(stage))
        self._offer(result.model_dump(mode="json"), str(raw.get("secret", "")))
        return without_prompt(result)

    def _provenance(self, stage: str) -> Provenance:
        placement = self.machine.stages.get(stage)
        engine, model = (placement.engine, placement.model) if placement else ("", "")
        return Provenance(machine=self.machine.name, engine=engine, model=model)

    def _begin(self, working: RunInHand) -> bool:
        """Its turn has come: tell at once, as whoever dies now has begun it. False when it was taken away."""
        working.phase = "starting"
        try:
            return self.telling.tell_one(working)
        except RedisError as error:
            log.warning("%s, starting a run anyway: %s", why_away(error), error)
            return True

    def _weights_changed(self, place: Place, why: messages.Message) -> None:
        self.circuits.missing(place, why)

    def _circuits_changed(self) -> None:
        self.returns.call_off(list(self._working.values()))
        self.look_again()
        if not self.stop.is_set():
            self.tell()  # now, so that others do not send on what cannot be done here

    def hand_back(self) -> int:
        """Send the runs in hand back to their queues; returns how many. Then this process must end."""
        return self.returns.hand_back(list(self._working.values()))

    def break_off(self, seconds: float) -> bool:
        """Cancel what is in hand, so that model servers stop working on it; whether all of it ended in time.

        Nothing of it is sent: it was handed back, or will be found missing.
        """
        for working in list(self._working.values()):
            working.cancel.cancel()
        with self._left:
            return self._left.wait_for(lambda: not self._working, seconds)

    def _offer(self, content: Mapping[str, Any], secret: str) -> None:
        offer(self.send, content, secret, self.stop)

    def _send_again(self, content: Mapping[str, Any], working: RunInHand) -> None:
        self.send(content, working.job.secret)
        self.claiming.finish(working)

    def get_ready(self) -> None:
        """Load models and find out which weights they have, now and then again; the body of a thread."""
        self.model_digests.load()
        self.model_digests.ask_until_stopped(self.stop)

    def send_heartbeats_until_stopped(self) -> None:
        """Heartbeat every 3 s and tell the progress of each run; the body of the heartbeat thread."""
        while True:
            self.tell()
            if self.stop.wait(HEARTBEAT_S):
                break

    def tell(self) -> None:
        """A heartbeat, unless that is impossible now."""
        try:
            self.heartbeat()
        except RedisError as error:
            log.warning("%s, no heartbeat sent: %s", why_away(error), error)
        except Exception:
            log.exception(
                "sending the heartbeat failed"
            )  # the heartbeat must outlive anything: silence means death

    def give_way(self) -> None:
        """Break off what is done in the background: grading needs the machine."""
        self.returns.give_way(list(self._working.values()))

    def in_hand(self) -> dict[str, int]:
        """stage -> runs in hand, and those being claimed."""
        placing = Counter(list(self._placing.values()))
        return dict(placing + Counter(working.job.stage for working in list(self._working.values())))

    def routing_facts(self) -> RoutingFacts:
        """What this machine tells of itself for routing, to others and to itself."""
        return RoutingFacts(
            joins_after_s=self.machine.patience_s,
            reserved=self.machine.reserved,
            running=self.in_hand(),
            remaining={stage: round(left, 3) for stage, left in self.throughput.remaining().items()},
            load_s=self.throughput.load_s(),
        )

    def heartbeat(self) -> None:
        """One heartbeat."""
        machine, (takes, why) = self.machine, self.chosen()
        drained = self.leases.heartbeat(
            Heartbeat(
                self.process,
                machine.name,
                machine.slots,
                len(self._working),
                self.model_digests.stages(),
                embeddings={model: one.engine for model, one in machine.embedders.items()},
                role=machine.role,
                drained=self.drained or self.stopping,
                engines=counters(self.engines),
                metrics=metric_types(self.engines),
                circuits=self.circuits.state(),
                gateway_requests=self.gateway_requests(),
                takes=takes,
                runs_at=me(),
                folder=code_folder(),
                **reason(why),
                **self.throughput.told(),
                **self.routing_facts().facts(),
            )
        )
        self.telling.confirm()
        self.circuits.take_out(self.leases.stages_out(machine.name))
        if drained != self.drained:
            log.info("machine %s was %s", machine.name, "drained" if drained else "resumed")
            self.listen(not drained)
            self.drained = drained
            self.heartbeat()  # what the others hear is old otherwise

    def leave(self) -> None:
        """No more heartbeats: this process is going."""
        self.stop.set()
        self.circuits.close()
        self.telling.changed()
        try:
            self.leases.leave(self.machine.name, self.process)
        except RedisError as error:
            log.warning(
                "%s, the heartbeat of this process could not be removed and will expire: %s",
                why_away(error),
                error,
            )

    def close(self) -> None:
        """End in order: no more heartbeats, engines given back."""
        self.leave()
        for engine in self.engines.values():
            engine.close()
