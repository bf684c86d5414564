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
from grading.errors import EngineError
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
            log.error("a message that is no job was dropped: %d faults", error.error_count())
            return {"refused": "not a job"}
        answer = self._place(job, hand_on)
        if answer == "elsewhere":
            return None
        if answer == "superseded":
            return {"superseded": job.run_id}
        self._tokens[job.run_id] = 0
        try:
            result = self._exhausted(job) if answer == "exhausted" else self._work(job)
            content = result.model_dump(mode="json")
            self._offer(content)
        finally:
            self._give_back(job.run_id)
        return content

    def _work(self, job: Job) -> Result:
        placement = self.machine.stages[job.stage]
        settings = self.machine.engines.get(placement.engine)
        return run_stage(
            job,
            self.engines[placement.engine],
            placement.model,
            self.machine.name,
            progress=lambda tokens: self._tokens.__setitem__(job.run_id, tokens),
            context_tokens=(settings or EngineSettings()).context_tokens,
        )

    def _exhausted(self, job: Job) -> Result:
        placement = self.machine.stages[job.stage]
        return Result(
            run_id=job.run_id,
            round_id=job.round_id,
            stage=job.stage,
            ok=False,
            error="exhausted",
            message=EXHAUSTED,
            retry=False,
            provenance=Provenance(machine=self.machine.name, engine=placement.engine, model=placement.model),
        )

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

    def _offer(self, content: Mapping[str, Any]) -> None:
        waited, wait = 0.0, 0.2
        while True:
            try:
                return self.send(content)
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
