"""One worker process beside a model: takes jobs, holds leases, beats, sends results back."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from redis.exceptions import RedisError

from grading.config import EngineSettings, Machine
from grading.dispatch import AWAY
from grading.errors import EngineError, JobInvalid
from grading.leases import BEAT_S, Answer, Beat, Claim, Lease, Leases
from grading.model import Job, Provenance, Result
from workers.machine.engines.base import Engine, LoadsModels
from workers.machine.stages.run import run_stage

log = logging.getLogger(__name__)
HandOn = Callable[[str], None]
"""Sends the run of this message to the machine of that name; raises one of AWAY when that fails."""
SEND_FOR_S = 600.0
"""How long a finished result is offered to a Redis that is away, before the work is given up."""
EXHAUSTED = "This work was begun three times and never came to an end; it is not begun again."
NOT_HERE = (
    "The machine that got this work does not do this stage; its configuration differs from the server's."
)
OTHER_VERSION = (
    "The machine that got this work does not understand it; it runs another version than the server."
)


@dataclass
class MachineProcess:
    """A machine's engines and what it does with a job. `send` publishes a result to the server."""

    machine: Machine
    engines: Mapping[str, Engine]
    leases: Leases
    send: Callable[[Mapping[str, Any]], None]
    process: str = field(default_factory=lambda: uuid.uuid4().hex)
    stop: threading.Event = field(default_factory=threading.Event)
    _tokens: dict[str, int] = field(default_factory=dict)

    def run(self, raw: Mapping[str, Any], hand_on: HandOn | None = None) -> dict[str, Any] | None:
        """Do a job, send its result at once, and return it for the chord. Raises nothing for bad work.

        None when the run was handed on to another machine, which needs `hand_on`.
        """
        try:
            job = Job.model_validate(raw)
        except ValidationError as error:
            log.error("a message that is no job was refused: %d faults", error.error_count())
            return self._refuse(raw)
        answer = self._place(job, hand_on)
        if answer == "elsewhere":
            return None
        if answer == "superseded":
            return {"superseded": job.run_id}
        self._tokens[job.run_id] = 0
        try:
            result = (
                _exhausted(job, self._provenance(job.stage)) if answer == "exhausted" else self._work(job)
            )
            log.info(
                "run %s, %s of round %s: %s after %.1f s",
                job.run_id,
                job.stage,
                job.round_id,
                "done" if result.ok else result.error,
                result.provenance.seconds,
            )
            return self._offer(result)
        finally:
            self._give_back(job.run_id)

    def _work(self, job: Job) -> Result:
        placement = self.machine.stages.get(job.stage)
        if placement is None:
            return _failed(
                job.run_id, job.round_id, job.stage, self._provenance(job.stage), JobInvalid(NOT_HERE)
            )
        settings = self.machine.engines.get(placement.engine)
        return run_stage(
            job,
            self.engines[placement.engine],
            placement.model,
            self.machine.name,
            progress=lambda tokens: self._tokens.__setitem__(job.run_id, tokens),
            context_tokens=(settings or EngineSettings()).context_tokens,
        )

    def _refuse(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a message that is no job: as a failed run, if it says which, so that nobody waits."""
        run_id, round_id, stage = (raw.get(key) for key in ("run_id", "round_id", "stage"))
        if not (isinstance(run_id, str) and isinstance(round_id, str) and isinstance(stage, str)):
            return {"refused": "not a job"}
        return self._offer(
            _failed(run_id, round_id, stage, self._provenance(stage), JobInvalid(OTHER_VERSION))
        )

    def _provenance(self, stage: str) -> Provenance:
        placement = self.machine.stages.get(stage)
        engine, model = (placement.engine, placement.model) if placement else ("", "")
        return Provenance(machine=self.machine.name, engine=engine, model=model)

    def _place(self, job: Job, hand_on: HandOn | None) -> Answer:
        """Claim the run, or hand it on to where it belongs; when that fails, it is done here."""
        claim = self._claim(job, hand_on is not None)
        if claim.answer != "elsewhere" or hand_on is None:
            return claim.answer
        try:
            hand_on(claim.machine)
        except AWAY as error:
            log.warning("redis is away, a run of machine %s is done here: %s", claim.machine, error)
            return self._claim(job, False).answer
        return "elsewhere"

    def _claim(self, job: Job, hand_on: bool) -> Claim:
        lease = Lease(job.run_id, self.machine.name, self.process, job.stage)
        try:
            return self.leases.claim(lease, job.round_id, role=self.machine.role, hand_on=hand_on)
        except RedisError as error:
            # SQL accepts one result only, so working without a lease costs time at most
            log.warning("redis is away, working without a lease: %s", error)
            return Claim("granted")

    def _give_back(self, run_id: str) -> None:
        self._tokens.pop(run_id, None)
        try:
            self.leases.give_back(run_id)
        except RedisError as error:
            log.warning("redis is away, a lease stays until the sweeper ends it: %s", error)

    def _offer(self, result: Result) -> dict[str, Any]:
        """Send a result to the server, for ten minutes if need be; returns it as JSON."""
        content = result.model_dump(mode="json")
        waited, wait = 0.0, 0.2
        while True:
            try:
                self.send(content)
                return content
            except AWAY as error:
                if waited >= SEND_FOR_S or self.stop.wait(wait):
                    raise
                log.warning("redis is away, the result waits here: %s", error)
            waited, wait = waited + wait, min(wait * 2, 5.0)

    def load_models(self) -> None:
        """Load what in-process engines will need, so that the first student does not wait for it."""
        for placement in self.machine.stages.values():
            engine = self.engines[placement.engine]
            if isinstance(engine, LoadsModels):
                try:
                    engine.load(placement.model)
                except EngineError as error:
                    log.error("model %s cannot be loaded: %s", placement.model, error.message)

    def beat_until_stopped(self) -> None:
        """Beat every 3 s and tell the progress of each run; the body of the heartbeat thread."""
        while True:
            try:
                self.beat()
            except RedisError as error:
                log.warning("redis is away, no beat: %s", error)
            except Exception:
                log.exception("no beat this time")  # this thread must outlive anything: silence means death
            if self.stop.wait(BEAT_S):
                break

    def beat(self) -> None:
        """One beat."""
        runs = dict(self._tokens)
        stages = {s: {"engine": p.engine, "model": p.model} for s, p in self.machine.stages.items()}
        machine = self.machine
        self.leases.beat(
            Beat(self.process, machine.name, machine.slots, len(runs), stages, role=machine.role)
        )
        for run_id, tokens in runs.items():
            self.leases.progress(run_id, "generating" if tokens else "reading", tokens)

    def close(self) -> None:
        """End in order: no more beats, engines given back."""
        self.stop.set()
        try:
            self.leases.leave(self.process)
        except RedisError as error:
            log.warning("redis is away, the sweeper will notice that this process ended: %s", error)
        for engine in self.engines.values():
            engine.close()


def _exhausted(job: Job, provenance: Provenance) -> Result:
    """The failure of a job that was begun too often, for good."""
    failure = _failed(job.run_id, job.round_id, job.stage, provenance, EngineError(EXHAUSTED))
    return failure.model_copy(update={"error": "exhausted", "retry": "never"})


def _failed(run_id: str, round_id: str, stage: str, provenance: Provenance, error: EngineError) -> Result:
    """A failure that another machine, or this one later, may not have."""
    return Result(
        run_id=run_id,
        round_id=round_id,
        stage=stage,
        ok=False,
        error=error.code,
        message=error.message,
        provenance=provenance,
    )
