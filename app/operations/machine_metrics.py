"""What /metrics tells of queues, machines and their engines: what Redis knows, and machines say by beats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from app.operations.metrics import Labels, counter, gauge
from app.operations.metrics_history import Bounded
from app.web.services import Services
from grading.broker.canaries import PartBeat
from grading.broker.machine_status import MachineState

NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
"""Of an engine, as config.toml takes it."""
CIRCUIT = {"closed": 0, "probing": 1, "open": 2}


class FromQueue(Collector):
    """What Redis tells. Without it only that it is away: that says nothing about the machines."""

    def __init__(self, given: Services) -> None:
        self.given = given
        self._read = Bounded(self._all)

    def _all(self) -> tuple[dict[str, int], list[MachineState], list[PartBeat]] | None:
        dispatch = self.given.dispatch
        backlog = dispatch.backlog()
        return None if backlog is None else (backlog, dispatch.machines(), dispatch.parts())

    def collect(self) -> Iterator[Metric]:
        """Queues and machines."""
        try:
            found = self._read()
        except TimeoutError:
            found = None
        yield gauge("grader_redis_up", "1 when Redis answers.", [((), found is not None)])
        if found is None:
            return
        backlog, machines, parts = found
        lengths = [((name,), length) for name, length in backlog.items()]
        yield gauge("grader_queue_length", "Messages in a queue of Redis.", lengths, "queue")
        for name, text, values in (
            ("up", "1 when it beats.", [((one.name,), one.alive) for one in machines]),
            ("busy_slots", "Slots that generate.", [((one.name,), one.busy) for one in machines]),
            ("guests", "Slots that guests have.", [((one.name,), one.guests) for one in machines]),
            ("slots", "Generations at the same time.", [((one.name,), one.slots) for one in machines]),
            ("hung", "1 when it beats but takes no work.", [((one.name,), one.hung) for one in machines]),
        ):
            yield gauge(f"grader_machine_{name}", text, values, "machine")
        youngest: dict[Labels, float] = {}
        for part in parts:
            youngest[(part.part,)] = min(part.age_s, youngest.get((part.part,), part.age_s))
        text = "Since a process beside the database last said that it lives."
        yield gauge("grader_part_age_seconds", text, youngest.items(), "part")
        yield gauge(
            "grader_stage_machines_up",
            "Machines that beat, were not taken out, and do this stage with an engine that answers.",
            [((stage,), sum(_does(one, stage) for one in machines)) for stage in self.given.config.stages],
            "stage",
        )
        yield _circuits(machines)
        yield from _engines(machines)


def _does(one: MachineState, stage: str) -> bool:
    broken = one.beat.broken if one.beat else ()
    return one.alive and not one.drained and stage in one.stages and stage not in broken


def _engines_of(one: MachineState) -> list[str]:
    """The engines that do its stages; of others, whatever a machine says, nothing is served."""
    return sorted(
        {engine for stage in one.stages.values() if NAME.fullmatch(engine := stage.get("engine", ""))}
    )


def _circuits(machines: Sequence[MachineState]) -> Metric:
    """Of the engines that live machines use; one that is not told of is closed."""
    said = {
        (one.name, engine): str(one.beat.circuits.get(engine, {}).get("state", "closed"))
        for one in machines
        if one.alive and one.beat
        for engine in _engines_of(one)
    }
    text = "Whether an engine gets work: 0 it does, 1 it is being probed, 2 it does not."
    values = [(key, CIRCUIT[state]) for key, state in said.items() if state in CIRCUIT]
    return gauge("grader_circuit_state", text, values, "machine", "engine")


def _engines(machines: Sequence[MachineState]) -> Iterator[Metric]:
    """What live machines' engines count, by the names that their machine declares; of our engines only."""
    live = [one for one in machines if one.alive]
    for name in sorted({name for one in live for name in one.metrics}):
        # one family has one type and one help: where machines differ, what most of them say
        declared = Counter(one.metrics[name] for one in live if name in one.metrics)
        metric = declared.most_common(1)[0][0]
        values = [
            ((one.name, engine), one.engines[engine][name])
            for one in live
            if name in one.metrics and one.metrics[name].kind == metric.kind
            for engine in _engines_of(one)
            if name in one.engines.get(engine, {})
        ]
        make = counter if metric.kind == "counter" else gauge
        yield make(f"grader_engine_{name}", metric.help, values, "machine", "engine")
