"""What /metrics tells. What is counted comes from SQL, so every web process says the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from app.operations.metrics_history import Bounded, History
from app.web.services import Services
from grading.domain.errors import EngineError
from grading.domain.model import RoundState, RunState
from grading.store.reporting import metrics
from grading.store.reporting.metrics import END_TO_END_S, FIRST_TOKEN_S, STAGE_S, Open, Spread, Totals

Labels = tuple[str, ...]
BESIDE_ENGINES = ("machine_lost", "machine_stalled", "exhausted")
"""Error codes of runs beside those of engines."""
WAITS = (RoundState.RECEIVED, RoundState.QUEUED)
GAVE_A_RESULT = (RunState.DONE, RunState.DUPLICATE)
OF_WORK = ("stage", "machine", "model")


class FromStore(Collector):
    """What SQL tells. Without the database only that it is away."""

    def __init__(self, given: Services) -> None:
        self.config = given.config
        self.history = History(given.store)
        self._read = Bounded(self.history.read)

    def collect(self) -> Iterator[Metric]:
        """Everything that SQL knows."""
        try:
            totals, now_open = self._read()
        except (SQLAlchemyError, TimeoutError):
            yield gauge("grader_database_up", "1 when the database answers.", [((), 0)])
            return
        yield gauge("grader_database_up", "1 when the database answers.", [((), 1)])
        yield from _open(now_open, self.config.stages)
        yield from self._dead(totals, now_open)
        yield from self._machines(now_open)
        yield from self._outcomes(totals)
        yield from _work(totals)
        yield from _rounds(totals)

    def _machines(self, now_open: Open) -> Iterator[Metric]:
        names = [one.name for one in self.config.machines]
        yield gauge(
            "grader_machine_drained",
            "1 when an operator took it out.",
            [((name,), name in now_open.drained) for name in names],
            "machine",
        )

    def _dead(self, totals: Totals, now_open: Open) -> Iterator[Metric]:
        # also where there is none: what appears from nowhere does not count as growth
        none = dict.fromkeys(((stage, "") for stage in self.config.stages), 0)
        waiting = summed(((stage, _code(error)), count) for (stage, error), count in now_open.dead.items())
        yield gauge(
            "grader_dead_stages",
            "Dead stages that nobody has replayed.",
            (none | waiting).items(),
            *("stage", "error"),
        )
        ever = summed(((stage, _code(error)), count) for (stage, error), count in totals.dead.items())
        yield counter(
            "grader_dead_letters",
            "Stages that had no more tries.",
            (none | ever).items(),
            *("stage", "error"),
        )

    def _outcomes(self, totals: Totals) -> Iterator[Metric]:
        runs = summed(
            ((stage, machine or "none", state, _code(error)), sums.runs)
            for (stage, machine, _, state, error), sums in totals.runs.items()
        )
        yield counter(
            "grader_runs",
            "Finished runs of stages by what became of them.",
            self.history.rising(runs).items(),
            *("stage", "machine", "outcome", "error"),
        )
        retries = summed(((kind[0],), sums.retries) for kind, sums in totals.runs.items())
        yield counter(
            "grader_retries", "Finished runs that were not their stage's first.", retries.items(), "stage"
        )


def _work(totals: Totals) -> Iterator[Metric]:
    """Durations and tokens of the runs that gave a result."""
    done = summed(
        ((stage, machine or "none", model), sums)
        for (stage, machine, model, state, _), sums in totals.runs.items()
        if state in GAVE_A_RESULT
    )
    yield _histogram(
        "grader_stage_duration_seconds",
        "From a machine's beginning to its result.",
        STAGE_S,
        [(key, sums.seconds) for key, sums in done.items()],
        *OF_WORK,
    )
    yield _histogram(
        "grader_time_to_first_token_seconds",
        "From asking the engine to its first token.",
        FIRST_TOKEN_S,
        [(key, sums.first_token_s) for key, sums in done.items()],
        *OF_WORK,
    )
    for name, text in (
        ("prompt_tokens", "Tokens of prompts."),
        ("cached_tokens", "Tokens of prompts that came from a prefix cache."),
        ("output_tokens", "Tokens of answers."),
        ("generation_seconds", "Seconds from the first token to the end, all slots together."),
    ):
        yield counter(f"grader_{name}", text, [(k, getattr(s, name)) for k, s in done.items()], *OF_WORK)


def _open(now_open: Open, known: Iterable[str]) -> Iterator[Metric]:
    rounds = now_open.rounds.items()
    states = summed(((state,), waiting.count) for (state, _), waiting in rounds)
    yield gauge("grader_rounds", "Rounds that are not finished, by state.", states.items(), "state")
    waits = summed(((priority,), waiting) for (state, priority), waiting in rounds if state in WAITS)
    depth = [(key, waiting.count) for key, waiting in waits.items()]
    age = [(key, waiting.oldest_s) for key, waiting in waits.items()]
    yield gauge("grader_queue_depth", "Rounds that wait in the database.", depth, "priority")
    yield gauge("grader_queue_age_seconds", "Age of the oldest round that waits.", age, "priority")
    none = {(stage, state.value): 0 for stage in known for state in metrics.OPEN_STAGES}
    stages = {**none, **now_open.stages}.items()
    yield gauge("grader_stages", "Stages that are not over.", stages, "stage", "state")
    pending = [((kind,), waiting.count) for kind, waiting in now_open.outbox.items()]
    oldest = [((kind,), waiting.oldest_s) for kind, waiting in now_open.outbox.items()]
    yield gauge("grader_outbox_pending", "Things to be sent that were not yet.", pending, "kind")
    yield gauge("grader_outbox_oldest_seconds", "Age of the oldest of them.", oldest, "kind")


def _rounds(totals: Totals) -> Iterator[Metric]:
    yield counter(
        "grader_rounds_finished",
        "Rounds that came to an end.",
        [(key, spread.count) for key, spread in totals.rounds.items()],
        *("state", "priority"),
    )
    graded = [((p,), spread) for (state, p), spread in totals.rounds.items() if state == RoundState.GRADED]
    yield _histogram(
        "grader_end_to_end_seconds",
        "From the hand-in, or the wish to grade it again, to the grade.",
        END_TO_END_S,
        graded,
        "priority",
    )


def _code(error: str) -> str:
    """The error code if it is one of ours: machines are not trusted with the number of series."""
    return error if not error or error in BESIDE_ENGINES or error in _codes(EngineError) else "other"


def _codes(kind: type[EngineError]) -> set[str]:
    return {kind.code}.union(*(_codes(one) for one in kind.__subclasses__()))


def summed(pairs: Iterable[tuple[Labels, Any]]) -> dict[Labels, Any]:
    """Values of the same labels added up."""
    found: dict[Labels, Any] = {}
    for key, value in pairs:
        found[key] = found[key] + value if key in found else value
    return found


def gauge(name: str, text: str, values: Iterable[tuple[Labels, float]], *labels: str) -> Metric:
    """A value for each of the labels' combinations."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def counter(name: str, text: str, values: Iterable[tuple[Labels, float]], *labels: str) -> Metric:
    """A count that only grows, for each of the labels' combinations."""
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _histogram(
    name: str, text: str, bounds: Iterable[float], values: Iterable[tuple[Labels, Spread]], *labels: str
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    names = [str(float(bound)) for bound in bounds]
    for key, spread in values:
        buckets = [*zip(names, spread.at_most, strict=True), ("+Inf", spread.count)]
        family.add_metric(key, buckets, spread.total)
    return family
