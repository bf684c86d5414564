"""Each machine: does it send heartbeats, take work, agree with the configuration, and generate a token of
each model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cli.doctor import capacity
from cli.doctor.finding import Finding, Installation, disk, failure, ok, size, warning
from cli.examinations import Answer, ask_machines
from grading.broker.celery_app import EXAMINE
from grading.broker.dispatch import AWAY, Dispatch, open_dispatch
from grading.broker.heartbeats import Heartbeat
from grading.broker.machine_status import MachineState, changed_models
from grading.config.settings import Machine
from grading.domain.model_digests import Claim, claims, differing, short
from grading.shared.code_version import fingerprint, software
from workers.machine.engines import known_engines

TRAVEL_S = 10.0
FRESH_S = 6.0
"""Two heartbeats; an older one may be that of a process which was killed and replaced."""
LEAST_MEMORY = 2_000_000_000


class Remedy(NamedTuple):
    """What to do about a model that gives no token."""

    code: str
    text: str


REMEDIES = {
    "engine_unreachable": Remedy("model_engine_away", "start the engine, or correct its url in config.toml"),
    "model_missing": Remedy(
        "model_missing", "load the model there: `ollama pull MODEL`, or `hf download MODEL` for MLX"
    ),
    "engine_stalled": Remedy("model_stalled", "restart the engine there, and see its log"),
    "budget_exceeded": Remedy("model_slow", "restart the engine there, or wait longer with --patience"),
    "engine_busy": Remedy(
        "model_busy", "wait, or let the engine serve as many requests in parallel as the machine has slots"
    ),
}
OTHERWISE = Remedy("model_fails", "see the engine's log there, and docs/reference/model-faults.md")

Examination = Answer


def diagnose(installation: Installation) -> Iterator[Finding]:
    """All machines of the configuration, and those that send heartbeats without being in it."""
    dispatch = open_dispatch(installation.config)
    try:
        able = [state.name for state in dispatch.machines() if state.alive and not state.hung]
        answers = _examine(installation, dispatch, able)
        states = {state.name: state for state in dispatch.machines()}
        dispatch.registry.seek()
        heartbeats = [heartbeat for heartbeat in dispatch.registry.heartbeats() if heartbeat.alive]
    except AWAY:
        return  # that is said elsewhere
    finally:
        dispatch.registry.redis.close()
        dispatch.celery.close()
    for machine in installation.config.machines:
        yield from _machine(installation, machine, states[machine.name], answers.get(machine.name))
        mine = [one for one in heartbeats if one.machine == machine.name]
        yield from _one_worker(f"machine {machine.name}", mine)
    for name in sorted({heartbeat.machine for heartbeat in heartbeats} - states.keys()):
        message = "sends heartbeats but is not in config.toml"
        yield warning(
            "machine_unknown", f"machine {name}", message, "stop its worker, or add it to config.toml"
        )
    yield from _model_digests(states.values(), answers)


def _examine(installation: Installation, dispatch: Dispatch, names: Sequence[str]) -> dict[str, Examination]:
    """Ask machines to examine themselves, all at once; those that do not answer in time are left out."""
    patience = installation.bounds.patience_s
    models = max((len(_models(m)) for m in installation.config.machines), default=1)
    wait = patience * models + TRAVEL_S
    return ask_machines(dispatch, EXAMINE, names, [patience], wait, _worth_waiting)


def _worth_waiting(state: MachineState) -> bool:
    """Not for machines that died meanwhile, nor for those whose slots are all busy with students' work."""
    return state.alive and state.busy < state.slots


def _models(machine: Machine) -> set[tuple[str, str]]:
    return {(p.engine, p.model) for p in machine.stages.values()}


def _machine(
    installation: Installation, machine: Machine, state: MachineState, found: Examination | None
) -> Iterator[Finding]:
    name = f"machine {machine.name}"
    if not state.alive:
        yield from unknown_engines(name, machine)
        yield _silent(name, machine, state)
        return
    yield from _state(name, machine, state)
    if found is not None:
        try:
            yield from [*_found(name, installation, machine, found)]
        except (LookupError, TypeError, ValueError, AttributeError):
            message = "its answer cannot be read; it probably runs another version"
            remedy = _by_ssh(machine, "install the same version on both")
            yield failure("examination_unreadable", f"{name} software", message, remedy)
    elif state.busy >= state.slots:
        message = f"all {state.slots} slots are busy, so it was not checked"
        yield warning("machine_busy", name, message, "run `grader doctor` again when it is less busy")
    elif not state.hung:
        remedy = f"restart `grader worker {machine.name}`"
        if machine.ssh is not None:
            remedy = f"run `grader cluster restart {machine.name}`"
        yield failure("examination_unanswered", name, "did not answer the check", remedy)


def _by_ssh(machine: Machine, by_hand: str) -> str:
    """The remedy where `grader deploy` does it by SSH; else what a person does there."""
    return by_hand if machine.ssh is None else f"run `grader deploy {machine.name}`"


def _silent(name: str, machine: Machine, state: MachineState) -> Finding:
    remedy = _by_ssh(machine, f"run `grader worker {machine.name}` there, and check that it reaches Redis")
    if machine.ssh is not None:
        remedy += f", which starts its worker; `grader cluster logs {machine.name}` shows its log"
    if not state.heartbeat_age_s:
        return failure("machine_never", name, "no heartbeat", remedy)
    message = f"the last heartbeat is {state.heartbeat_age_s:.0f} s old"
    return failure("machine_silent", name, message, remedy)


def _one_worker(name: str, heartbeats: Sequence[Heartbeat]) -> Iterator[Finding]:
    """One process works for a machine; one that was killed and replaced is silent for a while first."""
    fresh = [one for one in heartbeats if one.age_s <= FRESH_S]
    if len(fresh) > 1:
        where = "; ".join(sorted(f"{_plain(one.runs_at)} in {_plain(one.folder)}" for one in fresh))
        message = f"{len(fresh)} workers have this name: {where}"
        remedy = "stop all but one; each machine needs its own name in config.toml"
        yield warning("machine_twice", f"{name} workers", message, remedy)


def _plain(text: str) -> str:
    """What a machine says of itself, which may be anything."""
    return "".join(c for c in text[:100] if c.isprintable()) or "somewhere"


def unknown_engines(name: str, machine: Machine) -> Iterator[Finding]:
    """Engines of a machine that does not run which are not installed here either."""
    names = known_engines()
    for engine in sorted(machine.kinds - names.keys()):
        message = f"the engine '{engine}' of config.toml is unknown; known are {', '.join(names)}"
        yield failure(
            "engine_unknown",
            f"{name} engine {engine}",
            message,
            "correct its name, or install its package there",
        )


def _state(name: str, machine: Machine, state: MachineState) -> Iterator[Finding]:
    if state.hung:
        message = f"sends heartbeats but took no work for {state.canary_age_s:.0f} s"
        yield failure(
            "machine_hung", name, message, "restart its worker; as a service it restarts automatically"
        )
    else:
        yield ok(name, f"running, {state.busy} of {state.slots} slots busy")
    yield from _circuits(name, state)
    if state.drained:
        yield warning(
            "machine_drained",
            f"{name} drained",
            "receives no new work",
            f"run `grader drain {machine.name} --back`",
        )
    configured = {s: f"{p.model} ({p.engine})" for s, p in machine.stages.items()}
    working = {s: f"{p['model']} ({p['engine']})" for s, p in state.stages.items()}
    if configured != working:
        message = f"runs with {_words(working)}; config.toml here says {_words(configured)}"
        yield failure(
            "machine_stages_differ",
            f"{name} stages",
            message,
            _by_ssh(machine, "copy config.toml there and restart its worker"),
        )
    if state.slots != machine.slots:
        message = f"runs with {state.slots} slots; config.toml here says {machine.slots}"
        remedy = _by_ssh(machine, "copy config.toml there and restart its worker")
        yield warning("machine_slots_differ", f"{name} slots", message, remedy)


def _circuits(name: str, state: MachineState) -> Iterator[Finding]:
    """Engines that get no work until they answer again."""
    for engine, circuit in (state.heartbeat.circuits if state.heartbeat else {}).items():
        if circuit.get("state", "closed") != "closed":
            stages = " and ".join(map(str, circuit.get("stages") or ("work",)))
            since = circuit.get("since_s")
            lasts = f" for {since:.0f} s" if isinstance(since, int | float) else ""
            message = f"receives no {stages}{lasts}: {circuit.get('why') or 'its engine failed'}"
            remedy = "fix the engine; it is tested again within a minute and then receives work"
            yield failure("engine_broken", f"{name} engine {engine}", message, remedy)


def _words(stages: Mapping[str, str]) -> str:
    return ", ".join(f"{stage}: {model}" for stage, model in sorted(stages.items())) or "no stage"


def _found(name: str, installation: Installation, machine: Machine, found: Examination) -> Iterator[Finding]:
    if fingerprint(found["software"]) != fingerprint(software()):
        message = f"runs version {found['software']}; here is {software()}"
        yield warning(
            "machine_software_differs",
            f"{name} software",
            message,
            _by_ssh(machine, "install the same version on both and restart the worker"),
        )
    yield _link(f"{name} link", installation, found["link"])
    for model in found["models"]:
        yield _model(name, model)
        yield from capacity.compare(name, machine, model)
    remedy = "free space there; model servers keep unused models"
    yield disk(f"{name} disk", int(found["disk_free_bytes"]), installation.bounds, remedy)
    memory = found["memory"]
    available = memory.get("available_bytes")
    message = f"{size(memory['total_bytes'])} in total"
    if available is None:
        yield ok(f"{name} memory", message)
    elif available < LEAST_MEMORY:
        message += f", {size(available)} available"
        yield warning(
            "machine_memory_low",
            f"{name} memory",
            message,
            "use a smaller model, a shorter context or fewer slots",
        )
    else:
        yield ok(f"{name} memory", f"{message}, {size(available)} available")


def _link(name: str, installation: Installation, link: Mapping[str, Any]) -> Finding:
    if "error" in link:
        message = f"transfers fail: {link['error']}"
        return failure("link_broken", name, message, "check the network between this machine and Redis")
    there, back = link["to_server_bytes_s"], link["from_server_bytes_s"]
    message = f"round trip {link['latency_s'] * 1000:.1f} ms, upload {size(there)}/s, download {size(back)}/s"
    bounds = installation.bounds
    if link["latency_s"] > bounds.latency_s or min(there, back) < bounds.bytes_s:
        return warning("link_slow", name, message, "use a cable, or find what else uses the network")
    return ok(name, message)


def _model(name: str, model: Mapping[str, Any]) -> Finding:
    check = f"{name} model {model['model']}"
    if model["ok"]:
        digest = f", digest {short(model['digest'])}" if model["digest"] else ""
        return ok(check, f"generated a token in {model['seconds']:.1f} s{digest}{_cached(model)}")
    remedy = REMEDIES.get(model["error"], OTHERWISE)
    return failure(remedy.code, check, str(model["message"]), remedy.text)


def _cached(model: Mapping[str, Any]) -> str:
    counted = model.get("counters") or {}
    if not counted.get("prompt_tokens") or "cached_tokens" not in counted:
        return ""
    return f"; {counted['cached_tokens']:,.0f} of {counted['prompt_tokens']:,.0f} prompt tokens cached"


def _model_digests(states: Iterable[MachineState], answers: Mapping[str, Examination]) -> Iterator[Finding]:
    """Machines that share a model's name should have the same weights; what was just examined is newest."""
    for change in changed_models([*states]):
        yield failure("weights_changed", f"model {change.model}", change.message, change.remedy)
    said: dict[tuple[str, str, str], Claim] = {}
    heartbeats = [one for state in states if state.alive for one in claims(state.name, state.stages)]
    sources = {(one.machine, one.engine): one.source for one in heartbeats}
    for one in [*heartbeats, *_examined(answers)]:
        if one.digest:
            source = sources.get((one.machine, one.engine), "")
            said[one.machine, one.engine, one.model] = replace(one, source=source)
    for difference in differing(said.values()):
        yield warning("weights_differ", f"model {difference.model}", difference.message, difference.remedy)


def _examined(answers: Mapping[str, Examination]) -> Iterator[Claim]:
    for name, found in answers.items():
        for model in found.get("models", ()):
            if isinstance(model, dict) and isinstance(model.get("digest"), str):
                kind = str(model.get("kind") or model.get("engine"))
                yield Claim(name, kind, str(model.get("model")), model["digest"])
