"""What /metrics serves: what SQL counts, what Redis knows, room, certificates, and answered requests."""

from __future__ import annotations

import collections
import hmac
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Generic, TypeVar

from flask import Flask, Response, g, request
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from app.web.services import Services, services
from grading.broker.canaries import PartHeartbeat
from grading.broker.machine_status import MachineState, changed_models
from grading.domain.errors import EngineError, NotSignedIn
from grading.domain.round_states import RoundState, RunState
from grading.store import Store
from grading.store.reporting import metrics
from grading.store.reporting.metrics import (
    END_TO_END_S,
    FIRST_TOKEN_S,
    NOTHING,
    STAGE_S,
    Open,
    Spread,
    Totals,
)
from grading.store.reporting.operations import Upkeep, load_upkeep
from grading.store.reporting.replication import Replication, load_replication

HTTP_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
REFUSED = (
    "Metrics are for this machine itself; from elsewhere send the token that GRADER_METRICS_TOKEN holds, "
    "as `Authorization: Bearer …`."
)
T = TypeVar("T")
LOOK_EVERY_S = 600.0
"""At certificates, which change twice a year."""
PATIENCE_S = 5.0
"""For the database and for Redis each; Prometheus waits longer than for both."""
Labels = tuple[str, ...]
BESIDE_ENGINES = ("machine_lost", "machine_stalled", "exhausted", "gave_way")
"""Error codes of runs beside those of engines."""
WAITS = (RoundState.RECEIVED, RoundState.QUEUED)
GAVE_A_RESULT = (RunState.DONE, RunState.DUPLICATE)
OF_WORK = ("stage", "machine", "model")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
"""Of an engine, as config.toml takes it."""
CIRCUIT = {"closed": 0, "probing": 1, "open": 2}


def add_metrics(app: Flask, services: Services) -> None:
    """Serve /metrics from a registry of this app's own, and measure each request. First of all hooks."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FromStore(services))
    registry.register(FromReplication(services.store))
    registry.register(FromQueue(services))
    registry.register(FromServer(services))
    answered = Counter(
        "grader_http_requests", "HTTP requests answered.", ["endpoint", "status"], registry=registry
    )
    took = Histogram(
        "grader_http_request_duration_seconds",
        "Latency of HTTP requests in seconds.",
        ["endpoint"],
        buckets=HTTP_S,
        registry=registry,
    )

    def begin() -> None:
        g.began = time.perf_counter()

    def count(response: Response) -> Response:
        endpoint = request.endpoint or "none"
        answered.labels(endpoint, str(response.status_code)).inc()
        took.labels(endpoint).observe(time.perf_counter() - g.began)
        return response

    def metrics() -> Response:
        """For Prometheus: queues, runs, machines, grades and requests."""
        _require_operator()
        return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

    app.before_request(begin)
    app.after_request(count)
    app.add_url_rule("/metrics", "metrics", metrics)


def _require_operator() -> None:
    """Let in who asks from this machine and not through a proxy, or has the token. Raises NotSignedIn."""
    token, header = services().metrics_token, request.headers.get("Authorization", "")
    if token and hmac.compare_digest(header.encode(), f"Bearer {token}".encode()):
        return
    forwarded = "Forwarded" in request.headers or "X-Forwarded-For" in request.headers
    if forwarded or not _loopback(request.remote_addr):
        raise NotSignedIn(REFUSED)


def _loopback(address: str | None) -> bool:
    try:
        return ip_address(address or "").is_loopback
    except ValueError:
        return False


class Bounded(Generic[T]):
    """Reads in a thread of its own, for which one waits a while; who asks meanwhile waits for the same.

    A database or Redis that hangs, rather than refuses, must not take one thread of the web app a scrape.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._running: Future[T] | None = None

    def __call__(self) -> T:
        """What was read, or what reading raised. Raises TimeoutError after PATIENCE_S."""
        with self._lock:
            if self._running is None or self._running.done():
                self._running = Future()
                threading.Thread(target=self._fulfil, args=(self._running,), daemon=True).start()
            running = self._running
        return running.result(PATIENCE_S)

    def _fulfil(self, running: Future[T]) -> None:
        try:
            running.set_result(self._read())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            running.set_exception(error)


@dataclass
class History:
    """Totals since ever: read once, then only what finished since the last look."""

    store: Store
    _settled: Totals = NOTHING
    _until: datetime | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _highest: dict[tuple[str, ...], int] = field(default_factory=dict)

    def read(self) -> tuple[Totals, Open, Upkeep]:
        """Totals, what is open, and the database's upkeep. Raises SQLAlchemyError."""
        with self._lock, self.store.read() as session:
            until = metrics.settled_until(session)
            if self._until is None or until > self._until:
                self._settled = self._settled + metrics.totals(session, self._until, until)
                self._until = until
            recent = metrics.totals(session, self._until, None)
            return self._settled + recent, metrics.count_open(session), load_upkeep(session)

    def rising(self, counted: Mapping[tuple[str, ...], int]) -> dict[tuple[str, ...], int]:
        """The counts, never lower than before: a lost run may answer late and change its state."""
        with self._lock:
            for key, count in counted.items():
                self._highest[key] = max(self._highest.get(key, 0), count)
            return dict(self._highest)


class FromStore(Collector):
    """What SQL tells. Without the database only that it is away."""

    def __init__(self, services: Services) -> None:
        self.config = services.config
        self.history = History(services.store)
        self._read = Bounded(self.history.read)

    def collect(self) -> Iterator[Metric]:
        """Everything that SQL knows."""
        try:
            totals, now_open, upkeep = self._read()
        except (SQLAlchemyError, TimeoutError):
            yield gauge("grader_database_up", "Whether the database is available (1) or not (0).", [((), 0)])
            return
        yield gauge("grader_database_up", "Whether the database is available (1) or not (0).", [((), 1)])
        yield from _upkeep(upkeep)
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
            "Whether an operator drained the machine (1) or not (0).",
            [((name,), name in now_open.drained) for name in names],
            "machine",
        )
        yield gauge(
            "grader_parity_alarms",
            "Open alarms of nightly parity: stages in which the machine grades golden submissions otherwise.",
            [((name,), now_open.alarms.get(name, 0)) for name in names],
            "machine",
        )

    def _dead(self, totals: Totals, now_open: Open) -> Iterator[Metric]:
        # also where there is none: what appears from nowhere does not count as growth
        none = dict.fromkeys(((stage, "") for stage in self.config.stages), 0)
        waiting = summed(((stage, _code(error)), count) for (stage, error), count in now_open.dead.items())
        yield gauge(
            "grader_dead_stages",
            "Failed stages with no retries left that were not replayed yet.",
            (none | waiting).items(),
            *("stage", "error"),
        )
        ever = summed(((stage, _code(error)), count) for (stage, error), count in totals.dead.items())
        yield counter(
            "grader_dead_letters",
            "Stages that failed with no retries left (dead letters).",
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
            "Finished runs of stages, by outcome.",
            self.history.rising(runs).items(),
            *("stage", "machine", "outcome", "error"),
        )
        retries = summed(((kind[0],), sums.retries) for kind, sums in totals.runs.items())
        yield counter("grader_retries", "Finished runs that were retries.", retries.items(), "stage")


class FromReplication(Collector):
    """What a PostgreSQL says of its replicas and its archive; nothing of SQLite."""

    def __init__(self, store: Store) -> None:
        self._read = Bounded(lambda: load_replication(store))

    def collect(self) -> Iterator[Metric]:
        """Nothing where the database is away, or a service hides what is asked for."""
        try:
            found = self._read()
        except (SQLAlchemyError, TimeoutError):
            return
        if found is not None:
            yield from replication_metrics(found)


def replication_metrics(found: Replication) -> Iterator[Metric]:
    """Lag of replicas, slots that keep the log, the archive, and whether commits are blocked."""
    text = "Whether commits wait for a synchronous replica and none is connected (1) or not (0)."
    yield gauge("grader_commits_blocked", text, [((), found.blocked)])
    text = "Replicas that the database's address names and that are not connected to the primary."
    yield gauge("grader_replicas_missing", text, [((), found.missing)])
    lags = [((name,), behind) for name, behind in found.lags.items()]
    yield gauge(
        "grader_replica_lag_bytes", "Log that a replica has not replayed yet, in bytes.", lags, "replica"
    )
    active = [((one.name,), one.active) for one in found.slots if one.active or one.idle]
    text = "Whether the replica of a replication slot that was used is connected (1) or not (0)."
    yield gauge("grader_replication_slot_active", text, active, "slot")
    kept = [((one.name,), one.kept_bytes) for one in found.slots]
    text = "Log that the primary keeps for a replication slot, in bytes."
    yield gauge("grader_replication_slot_bytes", text, kept, "slot")
    failing = [((), bool(found.failing))] if found.archives else []
    text = "Whether the last piece of the log could not be archived (1) or could (0)."
    yield gauge("grader_archive_failing", text, failing)


def _upkeep(upkeep: Upkeep) -> Iterator[Metric]:
    age = [] if upkeep.backup_age_s is None else [((), upkeep.backup_age_s)]
    yield gauge("grader_backup_age_seconds", "Age of the newest backup in seconds.", age)
    yield gauge("grader_database_bytes", "Size of the database in bytes.", [((), upkeep.database_bytes)])


def _work(totals: Totals) -> Iterator[Metric]:
    """Durations and tokens of the runs that gave a result."""
    done = summed(
        ((stage, machine or "none", model), sums)
        for (stage, machine, model, state, _), sums in totals.runs.items()
        if state in GAVE_A_RESULT
    )
    yield _histogram(
        "grader_stage_duration_seconds",
        "Duration of runs in seconds, from the start on a machine to the result.",
        STAGE_S,
        [(key, sums.seconds) for key, sums in done.items()],
        *OF_WORK,
    )
    yield _histogram(
        "grader_time_to_first_token_seconds",
        "Time to first token in seconds, from the request to the engine.",
        FIRST_TOKEN_S,
        [(key, sums.first_token_s) for key, sums in done.items()],
        *OF_WORK,
    )
    for name, text in (
        ("prompt_tokens", "Prompt tokens."),
        ("cached_tokens", "Prompt tokens read from a prefix cache."),
        ("output_tokens", "Output tokens."),
        ("generation_seconds", "Time from the first to the last token in seconds, summed over all slots."),
    ):
        yield counter(f"grader_{name}", text, [(k, getattr(s, name)) for k, s in done.items()], *OF_WORK)


def _open(now_open: Open, names: Iterable[str]) -> Iterator[Metric]:
    rounds = now_open.rounds.items()
    states = summed(((state,), waiting.count) for (state, _), waiting in rounds)
    yield gauge("grader_rounds", "Unfinished rounds, by state.", states.items(), "state")
    waits = summed(((priority,), waiting) for (state, priority), waiting in rounds if state in WAITS)
    depth = [(key, waiting.count) for key, waiting in waits.items()]
    age = [(key, waiting.oldest_s) for key, waiting in waits.items()]
    yield gauge("grader_queue_depth", "Rounds waiting in the database.", depth, "priority")
    yield gauge("grader_queue_age_seconds", "Age of the oldest waiting round in seconds.", age, "priority")
    none = {(stage, state.value): 0 for stage in names for state in metrics.OPEN_STAGES}
    stages = {**none, **now_open.stages}.items()
    yield gauge("grader_stages", "Unfinished stages, by state.", stages, "stage", "state")
    pending = [((kind,), waiting.count) for kind, waiting in now_open.outbox.items()]
    oldest = [((kind,), waiting.oldest_s) for kind, waiting in now_open.outbox.items()]
    yield gauge(
        "grader_outbox_pending", "Entries of the outbox that are not sent yet, by kind.", pending, "kind"
    )
    yield gauge(
        "grader_outbox_oldest_seconds",
        "Age of the oldest entry of the outbox that is not sent yet, in seconds.",
        oldest,
        "kind",
    )
    used = now_open.gateway.items()
    yield gauge(
        "grader_gateway_tokens_today",
        "Tokens of requests of the gateway since midnight UTC, by model and kind.",
        used,
        *("model", "kind"),
    )


def _rounds(totals: Totals) -> Iterator[Metric]:
    yield counter(
        "grader_rounds_finished",
        "Finished rounds.",
        [(key, spread.count) for key, spread in totals.rounds.items()],
        *("state", "priority"),
    )
    graded = [((p,), spread) for (state, p), spread in totals.rounds.items() if state == RoundState.GRADED]
    yield _histogram(
        "grader_end_to_end_seconds",
        "Latency of grading in seconds, from the submission or regrade request to the grade.",
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


class FromQueue(Collector):
    """What Redis tells. Without it only that it is away: that says nothing about the machines."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._read = Bounded(self._all)

    def _all(self) -> tuple[dict[str, int], list[MachineState], list[PartHeartbeat]] | None:
        dispatch = self.services.dispatch
        backlog = dispatch.backlog()
        return None if backlog is None else (backlog, dispatch.machines(), dispatch.parts())

    def collect(self) -> Iterator[Metric]:
        """Queues and machines."""
        try:
            found = self._read()
        except TimeoutError:
            found = None
        yield gauge(
            "grader_redis_up", "Whether Redis is available (1) or not (0).", [((), found is not None)]
        )
        if found is None:
            return
        backlog, machines, parts = found
        lengths = [((name,), length) for name, length in backlog.items()]
        yield gauge("grader_queue_length", "Queue length: messages in a queue of Redis.", lengths, "queue")
        yield from _machines(machines)
        youngest: dict[Labels, float] = {}
        for part in parts:
            youngest[(part.part,)] = min(part.age_s, youngest.get((part.part,), part.age_s))
        text = "Time since the last heartbeat of a server process, in seconds."
        yield gauge("grader_part_age_seconds", text, youngest.items(), "part")
        yield gauge(
            "grader_stage_machines_up",
            "Machines with heartbeats, not drained, that serve the stage with an available engine.",
            [((stage,), sum(_does(one, stage) for one in machines)) for stage in self.services.config.stages],
            "stage",
        )
        yield _circuits(machines)
        yield _changed(machines)
        yield from _engines(machines)


def _does(one: MachineState, stage: str) -> bool:
    broken = one.heartbeat.broken if one.heartbeat else ()
    return one.alive and not one.drained and stage in one.stages and stage not in broken


def _engines_of(one: MachineState) -> list[str]:
    """The engines that do its stages; of others, whatever a machine says, nothing is served."""
    return sorted(
        {engine for stage in one.stages.values() if NAME.fullmatch(engine := stage.get("engine", ""))}
    )


def _machines(machines: Sequence[MachineState]) -> Iterator[Metric]:
    for name, text, attribute in (
        ("up", "Whether the machine sends heartbeats (1) or not (0).", "alive"),
        ("busy_slots", "Slots in use by runs.", "busy"),
        ("gateway_requests", "Slots in use by gateway requests.", "gateway_requests"),
        ("slots", "Concurrency: generations the machine runs at the same time.", "slots"),
        ("hung", "Whether the machine sends heartbeats but consumes no messages (1) or not (0).", "hung"),
    ):
        values = [((one.name,), getattr(one, attribute)) for one in machines]
        yield gauge(f"grader_machine_{name}", text, values, "machine")


def _circuits(machines: Sequence[MachineState]) -> Metric:
    """Of the engines that live machines use; one that is not told of is closed."""
    circuits = {
        (one.name, engine): str(one.heartbeat.circuits.get(engine, {}).get("state", "closed"))
        for one in machines
        if one.alive and one.heartbeat
        for engine in _engines_of(one)
    }
    text = "Circuit breaker of an engine: 0 closed, 1 half-open (probing), 2 open (gets no runs)."
    values = [(key, CIRCUIT[state]) for key, state in circuits.items() if state in CIRCUIT]
    return gauge("grader_circuit_state", text, values, "machine", "engine")


def _changed(machines: Sequence[MachineState]) -> Metric:
    """By engine only: names of models are not bounded."""
    changed = {(one.machine, one.engine) for one in changed_models(machines)}
    values = [
        ((one.name, engine), int((one.name, engine) in changed))
        for one in machines
        if one.alive
        for engine in _engines_of(one)
    ]
    text = "Whether a model of the engine has other weights than before (1) or not (0)."
    return gauge("grader_model_weights_changed", text, values, "machine", "engine")


def _engines(machines: Sequence[MachineState]) -> Iterator[Metric]:
    """What live machines' engines count, by the names that their machine declares; of our engines only."""
    live = [one for one in machines if one.alive]
    for name in sorted({name for one in live for name in one.metrics}):
        # one family has one type and one help: where machines differ, what most of them say
        declared = collections.Counter(one.metrics[name] for one in live if name in one.metrics)
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


def data_folder(services: Services) -> Path:
    """The folder of the SQLite file; that of the process where the database is elsewhere."""
    path = make_url(services.store.url).database if services.store.url.startswith("sqlite") else None
    return Path(path).resolve().parent if path else Path.cwd()


class FromServer(Collector):
    """What this computer tells, and the certificates that people and machines are shown."""

    def __init__(self, services: Services, clock: Callable[[], float] = time.monotonic) -> None:
        self.services = services
        self._clock = clock
        self._look = Bounded(services.certificate_ends)
        self._lock = threading.Lock()
        self._ends: Mapping[str, float] = {}
        self._looked_at = -LOOK_EVERY_S

    def collect(self) -> Iterator[Metric]:
        """Disks and certificates."""
        disks = {"data": data_folder(self.services), "temporary": Path(tempfile.gettempdir())}
        free = [((name,), shutil.disk_usage(path).free) for name, path in disks.items()]
        yield gauge(
            "grader_disk_free_bytes", "Free space in bytes on the disk of these files.", free, "files"
        )
        yield gauge(
            "grader_certificate_end_timestamp_seconds",
            "Expiry of the certificate as a Unix timestamp; 0 if it is not trusted.",
            [((name,), end) for name, end in self._certificate_ends().items()],
            "server",
        )

    def _certificate_ends(self) -> Mapping[str, float]:
        """As they were found at the last look that was answered in time."""
        with self._lock:
            due = self._clock() - self._looked_at >= LOOK_EVERY_S
        if due:
            try:
                found = self._look()
            except TimeoutError:
                return self._ends
            with self._lock:
                self._ends, self._looked_at = found, self._clock()
        return self._ends
