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
    """The measured speed of a machine for a stage."""

    jobs_per_hour: float = Field(
        description="seconds of a run at the current concurrency and speed", examples=[120.0]
    )
    alone_s: float = Field(description="seconds of a single run at usual speed", examples=[22.0])
    full_s: float = Field(description="seconds of a run at concurrency `full`", examples=[60.0])
    full: int = Field(description="the concurrency that `full_s` was measured at", examples=[4])
    health: float = Field(
        description="the speed of the last 30 s relative to the usual speed", examples=[1.0]
    )
    tokens: float = Field(description="the output tokens of a typical run; 0 if unknown", examples=[600.0])
    measured: bool = Field(description="whether it was measured; false for an estimate")


class Circuit(BaseModel):
    """An engine that receives no work now."""

    engine: str = Field(description="the name of the engine", examples=["ollama"])
    state: Literal["open", "probing"] = Field(
        description="the circuit breaker: `open` (no work) or `probing` (half-open, one trial run)",
        examples=["open"],
    )
    why: str = Field(description="the reason, as a sentence", examples=["Three runs in a row failed."])
    why_code: str = Field("", description="the code of the message in `why`", examples=["circuits.failed"])
    why_params: dict[str, Any] = Field(
        default_factory=dict, description="the parameters of the message", examples=[{"count": 3}]
    )
    stages: tuple[str, ...] = Field(
        description="the stages that it does not receive", examples=[["analysis"]]
    )
    since_s: float | None = Field(description="the seconds since then; `null` if unknown", examples=[12.5])


class TakenRun(BaseModel):
    """A finished run."""

    stage: str = Field(description="the name of the stage", examples=["analysis"])
    state: str = Field(description="the result", examples=["done"])
    error: str = Field(description="why it failed; empty if it did not", examples=[""])
    seconds: float | None = Field(description="the duration", examples=[31.0])
    tokens: int | None = Field(description="the output tokens", examples=[640])
    ago_s: float = Field(description="the seconds since it ended", examples=[75.0])


class MachineStatus(BaseModel):
    """A machine with its load, speed and queues."""

    name: str = Field(description="the name in config.toml", examples=["dgx-spark-1"])
    role: str = Field(description="`primary` or `spare`", examples=["primary"])
    alive: bool = Field(description="whether its heartbeat is recent")
    slots: int = Field(description="the number of slots", examples=[8])
    busy: int = Field(description="the number of busy slots", examples=[3])
    gateway_requests: int = Field(
        description="the slots used by gateway requests, in addition to busy slots", examples=[0]
    )
    heartbeat_age_s: float | None = Field(
        description="the seconds since the last heartbeat; `null` if there is none", examples=[1.5]
    )
    stages: dict[str, dict[str, str]] = Field(
        description="the engine, the model and, if known, the model digest",
        examples=[{"analysis": {"engine": "ollama", "model": "qwen3-coder:30b"}}],
    )
    engines: dict[str, dict[str, float]] = Field(
        description="the counters of each engine since its start", examples=[{"ollama": {"requests": 412}}]
    )
    limit: int = Field(description="the current concurrency limit, from measurements", examples=[4])
    reserved: str = Field(description="`batch`, `testing` or empty", examples=[""])
    joins_after_s: float = Field(
        description="the waiting time after which a spare machine accepts work", examples=[0.0]
    )
    speeds: dict[str, StageSpeed] = Field(description="the speed of each measured stage")
    loading_s: dict[str, float] = Field(
        description="the load times of stages whose model is not loaded", examples=[{}]
    )
    circuits: list[Circuit] = Field(description="engines that receive no work now, with the reason")
    takes: tuple[str, ...] = Field(
        description="the queues that it consumes now", examples=[["machine.dgx-spark-1", "analysis"]]
    )
    why: str = Field(
        description="the reason for these queues", examples=["It is the fastest for this stage."]
    )
    why_code: str = Field("", description="the code of the message in `why`", examples=["routing.fastest"])
    why_params: dict[str, Any] = Field(
        default_factory=dict, description="the parameters of the message", examples=[{}]
    )
    notes: tuple[str, ...] = Field(description="warnings, as sentences", examples=[[]])
    last_runs: list[TakenRun] = Field(description="the last runs, newest first")


class Machines(BaseModel):
    """All machines and the queue lengths (none if Redis is not reachable)."""

    machines: list[MachineStatus] = Field(description="the machines")
    queues: dict[str, int] | None = Field(
        description="the messages in each queue; `null` if Redis is not reachable",
        examples=[{"analysis": 2, "store": 0}],
    )
    waiting: dict[str, int] = Field(
        description="the queued submissions in the database, by priority",
        examples=[{"interactive": 0}],
    )
    warnings: list[str] = Field(
        description="models with other weights than before, or with different weights on running machines",
        examples=[[]],
    )


@get("/machines", allowed("machines.see"))
def machines(call: Call) -> Machines:
    """List machines, their load and the queues (staff only)."""
    states = look()
    return Machines(
        machines=[_machine(one) for one in states.machines],
        queues=None if states.queues is None else dict(states.queues),
        waiting=dict(states.waiting),
        warnings=[f"{one.message}: {one.remedy}." for one in states.weights_warnings],
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
