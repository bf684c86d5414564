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

    jobs_per_hour: float = Field(
        description="with as many at once as it takes now, as fast as it is now", examples=[120.0]
    )
    alone_s: float = Field(description="seconds of a job by itself, at usual speed", examples=[22.0])
    full_s: float = Field(description="seconds of a job among `full` at once", examples=[60.0])
    full: int = Field(description="how many jobs at once `full_s` is about", examples=[4])
    health: float = Field(
        description="speed of the last half minute over what is usual there", examples=[1.0]
    )
    tokens: float = Field(description="written for a usual job; 0 where that is not known", examples=[600.0])
    measured: bool = Field(description="false for a first guess")


class Circuit(BaseModel):
    """An engine that gets no work for now."""

    engine: str = Field(description="the engine", examples=["ollama"])
    state: Literal["open", "probing"] = Field(
        description="`open`: it gets no work; `probing`: one run tries it", examples=["open"]
    )
    why: str = Field(description="why, in a sentence", examples=["Three runs in a row failed."])
    why_code: str = Field("", description="which message `why` is", examples=["circuits.failed"])
    why_params: dict[str, Any] = Field(
        default_factory=dict, description="what is filled into it", examples=[{"count": 3}]
    )
    stages: tuple[str, ...] = Field(description="the stages that it does not get", examples=[["analysis"]])
    since_s: float | None = Field(
        description="for how many seconds; `null` where that is not known", examples=[12.5]
    )


class TakenRun(BaseModel):
    """A run that ended."""

    stage: str = Field(description="the stage", examples=["analysis"])
    state: str = Field(description="how it ended", examples=["done"])
    error: str = Field(description="why it failed; empty where it did not", examples=[""])
    seconds: float | None = Field(description="how long it took", examples=[31.0])
    tokens: int | None = Field(description="how many tokens were written", examples=[640])
    ago_s: float = Field(description="how many seconds ago it ended", examples=[75.0])


class MachineStatus(BaseModel):
    """A machine, how busy it is, how fast, and what it takes and why."""

    name: str = Field(description="its name in config.toml", examples=["dgx-spark-1"])
    role: str = Field(description="`primary` or `spare`", examples=["primary"])
    alive: bool = Field(description="whether its heartbeat is recent")
    slots: int = Field(description="how many runs it may do at once", examples=[8])
    busy: int = Field(description="how many runs it does now", examples=[3])
    gateway_requests: int = Field(
        description="slots that requests by the gateway have, beside those that are busy", examples=[0]
    )
    heartbeat_age_s: float | None = Field(
        description="how many seconds ago its last heartbeat was; `null` where there is none", examples=[1.5]
    )
    stages: dict[str, dict[str, str]] = Field(
        description="engine, model, and where it is known the digest of the weights",
        examples=[{"analysis": {"engine": "ollama", "model": "qwen3-coder:30b"}}],
    )
    engines: dict[str, dict[str, float]] = Field(
        description="what each engine counts since its start", examples=[{"ollama": {"requests": 412}}]
    )
    limit: int = Field(
        description="generations at once that it takes now, as it measured to be best", examples=[4]
    )
    reserved: str = Field(description="`batch`, `testing` or empty", examples=[""])
    joins_after_s: float = Field(description="a spare joins when work has waited for so long", examples=[0.0])
    speeds: dict[str, StageSpeed] = Field(description="of each stage that it measured")
    loading_s: dict[str, float] = Field(
        description="stages whose model is not loaded: how long that takes", examples=[{}]
    )
    circuits: list[Circuit] = Field(description="engines that get no work for now, and why")
    takes: tuple[str, ...] = Field(
        description="queues it listens to now", examples=[["machine.dgx-spark-1", "analysis"]]
    )
    why: str = Field(description="why these", examples=["It is the fastest for this stage."])
    why_code: str = Field("", description="which message `why` is", examples=["routing.fastest"])
    why_params: dict[str, Any] = Field(
        default_factory=dict, description="what is filled into it", examples=[{}]
    )
    notes: tuple[str, ...] = Field(description="what is out of the ordinary, in sentences", examples=[[]])
    last_runs: list[TakenRun] = Field(description="what it did last, the newest first")


class Machines(BaseModel):
    """All machines and the queue lengths (nothing while Redis is away)."""

    machines: list[MachineStatus] = Field(description="each machine")
    queues: dict[str, int] | None = Field(
        description="how many messages wait in each queue; `null` while Redis is away",
        examples=[{"analysis": 2, "store": 0}],
    )
    waiting: dict[str, int] = Field(
        description="submissions in the database that were not sent, by priority",
        examples=[{"interactive": 0}],
    )
    warnings: list[str] = Field(
        description="models that live machines have with different weights", examples=[[]]
    )


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
