"""The machines, their load and the queues."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from app.api.guards import allowed
from app.api.routes import Call, get
from app.operations.machines import MachineDetails, look
from grading.broker.heartbeats import reason
from grading.broker.machine_status import CircuitTold


class StageSpeed(BaseModel):
    """How fast a machine does a stage, as it measured itself."""

    jobs_per_hour: float = Field(description="with as many at once as it takes now, as fast as it is now")
    alone_s: float = Field(description="seconds of a job by itself, at usual speed")
    full_s: float = Field(description="seconds of a job among `full` at once")
    full: int
    health: float = Field(description="speed of the last half minute over what is usual there")
    tokens: float = Field(description="written for a usual job; 0 where that is not known")
    measured: bool = Field(description="false for a first guess")


class Circuit(BaseModel):
    """An engine that gets no work for now."""

    engine: str
    state: Literal["open", "probing"]
    why: str
    why_code: str = Field("", description="which message `why` is")
    why_params: dict[str, Any] = Field(default_factory=dict, description="what is filled into it")
    stages: tuple[str, ...]
    since_s: float | None


class TakenRun(BaseModel):
    """A run that ended."""

    stage: str
    state: str
    error: str
    seconds: float | None
    tokens: int | None
    ago_s: float


class MachineStatus(BaseModel):
    """A machine, how busy it is, how fast, and what it takes and why."""

    name: str
    role: str
    alive: bool
    slots: int
    busy: int
    gateway_requests: int = Field(
        description="slots that requests by the gateway have, beside those that are busy"
    )
    heartbeat_age_s: float | None
    stages: dict[str, dict[str, str]] = Field(
        description="engine, model, and where it is known the digest of the weights"
    )
    engines: dict[str, dict[str, float]] = Field(description="what each engine counts since its start")
    limit: int = Field(description="generations at once that it takes now, as it measured to be best")
    reserved: str = Field(description="`batch`, `testing` or empty")
    joins_after_s: float = Field(description="a spare joins when work has waited for so long")
    speeds: dict[str, StageSpeed] = Field(description="of each stage that it measured")
    loading_s: dict[str, float] = Field(description="stages whose model is not loaded: how long that takes")
    circuits: list[Circuit] = Field(description="engines that get no work for now, and why")
    takes: tuple[str, ...] = Field(description="queues it listens to now")
    why: str = Field(description="why these")
    why_code: str = Field("", description="which message `why` is")
    why_params: dict[str, Any] = Field(default_factory=dict, description="what is filled into it")
    notes: tuple[str, ...] = Field(description="what is out of the ordinary, in sentences")
    last_runs: list[TakenRun] = Field(description="what it did last, the newest first")


class Machines(BaseModel):
    """All machines and the queue lengths (nothing while Redis is away)."""

    machines: list[MachineStatus]
    queues: dict[str, int] | None
    waiting: dict[str, int] = Field(description="submissions in the database that were not sent, by priority")
    warnings: list[str] = Field(description="models that live machines have with different weights")


@get("/machines", allowed("machines.see"))
def machines(call: Call) -> Machines:
    """The machines, their load and the queues; for staff."""
    states = look()
    return Machines(
        machines=[_machine(one) for one in states.machines],
        queues=None if states.queues is None else dict(states.queues),
        waiting=dict(states.waiting),
        warnings=[f"{one.message}: {one.remedy}." for one in states.differences],
    )


def _circuit(one: CircuitTold) -> Circuit:
    said = {"engine": one.engine, "state": one.state, "stages": one.stages, "since_s": one.since_s}
    return Circuit.model_validate({**said, **reason(one.why)})


def _machine(status: MachineDetails) -> MachineStatus:
    state, how = status.state, status.condition
    return MachineStatus(
        name=state.name,
        role=state.role,
        alive=state.alive,
        slots=state.slots,
        busy=state.busy,
        gateway_requests=state.gateway_requests,
        heartbeat_age_s=state.heartbeat_age_s,
        stages={stage: dict(placement) for stage, placement in state.stages.items()},
        engines={engine: dict(counters) for engine, counters in state.engines.items()},
        limit=how.limit,
        reserved=how.reserved,
        joins_after_s=how.joins_after_s,
        speeds={one.stage: StageSpeed.model_validate(one, from_attributes=True) for one in how.speeds},
        loading_s=how.loading_s,
        circuits=[_circuit(one) for one in how.circuits],
        takes=how.takes,
        **reason(how.why),
        notes=how.notes,
        last_runs=[TakenRun.model_validate(one, from_attributes=True) for one in status.last],
    )
