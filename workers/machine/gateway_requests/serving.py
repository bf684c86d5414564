"""Gateway requests that a machine serves: what other tools ask of its models, behind all grading.

A request never keeps grading waiting: as soon as a run waits and no slot is free, the youngest requests are
broken off. So are those whose model is another than that of the runs in hand, as it might have to make room
for it. None is begun while the machine is told to end or a run wants to be alone on it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set

from celery import Celery, Task
from redis.exceptions import RedisError

from grading.broker.away import why_away
from grading.broker.celery_app import own_queue
from grading.broker.dispatch import AWAY
from grading.broker.gateway_requests import (
    CHAT,
    DRAFTING,
    ENDING,
    PREEMPTED,
    Ask,
    Event,
    Talks,
    chat_queue,
    gateway_queues,
    served,
)
from grading.config.machines import Placement
from grading.config.settings import Config, Machine
from grading.domain.errors import EngineError, EngineUnreachable
from grading.scheduling.cluster_view import View
from grading.scheduling.routing import decide
from workers.machine.circuits import CircuitBreakers, Place
from workers.machine.engines.base import Engine
from workers.machine.gateway_requests.request import GONE, GatewayRequest
from workers.machine.scheduling.queue_selection import in_use
from workers.machine.scheduling.shared_exclusive_lock import Gate
from workers.machine.worker import MachineProcess

log = logging.getLogger(__name__)
LOOK_S = 0.5
FAILED = "engine_failed"


def on_models(machine: Machine, engines: Mapping[str, Engine]) -> dict[str, Placement]:
    """The stages that a machine does with a model."""
    return {stage: one for stage, one in machine.stages.items() if engines[one.engine].uses_model}


def queues_of(machine: Machine, engines: Mapping[str, Engine]) -> dict[str, Placement]:
    """The queues of requests that a machine can answer, and by what; none where it is kept for testing."""
    if machine.reserved == "testing":
        return {}
    return gateway_queues(on_models(machine, engines), machine.embedders)


def most_gateway_requests(slots: int) -> int:
    """How many of a machine's slots gateway requests may have at once; never the last one."""
    return 0 if slots < 2 else max(1, slots // 4)


class GatewayRequests:
    """Those in hand. `serve` runs on the worker's threads, `until_stopped` on one of its own.

    `pressed` says how many runs of grading wait although they could be done here, but for a slot; `graded`
    which models the runs in hand use. `circuits` hear of engines that are away.
    """

    def __init__(
        self,
        machine: Machine,
        engines: Mapping[str, Engine],
        talks: Talks,
        gate: Gate,
        pressed: Callable[[], int] = lambda: 0,
        graded: Callable[[], Set[Place]] = frozenset,
        circuits: CircuitBreakers | None = None,
    ) -> None:
        self.most = most_gateway_requests(machine.slots)
        self.pressed = pressed
        self._graded = graded
        self._circuits = circuits
        self._name = machine.name
        self._engines = engines
        self._served = served(on_models(machine, engines), machine.embedders)
        self._talks = talks
        self._gate = gate
        self._inside: dict[str, GatewayRequest] = {}
        self._places = 0
        self._open = True
        self._lock = threading.Lock()
        self._news = threading.Event()

    @property
    def in_hand(self) -> int:
        """How many slots gateway requests have now."""
        return self._places

    def at_work(self) -> Mapping[Place, int]:
        """How many generations of each model gateway requests have in their engines, beside grading."""
        with self._lock:
            return Counter(one.placement.place for one in self._inside.values() if one.in_batch)

    def serve(self, request_id: str, hand_back: Callable[[], None]) -> None:
        """Answer a request. `hand_back` sends its message back where this machine has no room for it."""
        if not self._come_in():
            hand_back()
            return
        try:
            taken = self._talks.take(request_id, self._name)
            if taken is not None:
                self._serve(request_id, *taken)
        except RedisError as error:
            # not the error itself: that of a pipeline repeats what was to be said
            log.warning("%s, a gateway request was canceled: %s", why_away(error), type(error).__name__)
        finally:
            self._go()

    def make_room(self, count: int, why: str = PREEMPTED) -> None:
        """Break off so many gateway requests, the youngest first; those that are ending already count."""
        with self._lock:
            youngest = list(self._inside.values())[::-1][: max(0, count)]
        for one in youngest:
            one.break_off(why)

    def close(self) -> None:
        """The machine is told to end: break all off and take none."""
        with self._lock:
            self._open = False
        self.make_room(len(self._inside), ENDING)
        self._news.set()

    def until_stopped(self, stop: threading.Event) -> None:
        """Keep the talks up, and room for grading, until `stop`, whose setting `close` must follow.

        The body of a thread.
        """
        while not stop.is_set():
            self._news.wait(LOOK_S if self._inside else None)
            self._news.clear()
            try:
                self._look()
            except Exception:
                log.exception(
                    "renewing the leases of gateway requests failed"
                )  # the thread must outlive anything

    def _look(self) -> None:
        with self._lock:
            inside = dict(self._inside)
        if not inside:
            return
        try:
            waited_for = self._talks.hold(inside)
        except RedisError as error:
            log.warning("%s, %d gateway requests were canceled: %s", why_away(error), len(inside), error)
            waited_for = set()
        for name, request in inside.items():
            if name in waited_for:
                request.tell()
            else:
                request.break_off(GONE)
        self._leave_models(inside.values())
        self._give_way(len(inside))

    def _leave_models(self, inside: Iterable[GatewayRequest]) -> None:
        """An engine may hold only one model at a time, and that is the one of grading."""
        graded = self._graded()
        for request in inside:
            if graded and request.placement.place not in graded:
                request.break_off(PREEMPTED)

    def _give_way(self, inside: int) -> None:
        try:
            pressed = inside if self._gate.awaited else self.pressed()
        except RedisError as error:
            log.debug("redis is unavailable, no gateway request is read: %s", error)
            return
        if pressed:
            self.make_room(pressed)

    def _come_in(self) -> bool:
        with self._lock:
            if not self._open or self._places >= self.most or not self._gate.enter_now(alone=False):
                return False
            self._places += 1
            return True

    def _go(self) -> None:
        self._gate.leave()
        with self._lock:
            self._places -= 1

    def _serve(self, name: str, ask: Ask, seconds: float) -> None:
        placement = self._served.get(ask.model)
        if placement is None:
            self._talks.leave(name, Event(kind="failed", code="model_missing"))
            return
        request = GatewayRequest(name, ask, placement, self._engines[placement.engine], self._talks)
        with self._lock:
            self._inside[name] = request
            late = not self._open
        if late:
            request.break_off(ENDING)
        self._leave_models([request])  # a run may have begun since the gateway request was let in
        self._news.set()
        try:
            self._talks.say(name, Event(kind="begun", machine=self._name, model=placement.model))
            last = self._answer(request, seconds)
        finally:
            with self._lock:
                del self._inside[name]
        self._talks.leave(name, *last)

    def _answer(self, request: GatewayRequest, seconds: float) -> tuple[Event, ...]:
        began = self._circuits.now() if self._circuits else 0.0
        try:
            last = request.answer(seconds)
        except EngineError as error:
            log.info("gateway request %s failed: %s", request.id, error.code)
            # all else may be for what the request asked: a stranger must not take an engine away from grading
            if self._circuits and isinstance(error, EngineUnreachable) and error.refused:
                self._circuits.refused(request.placement.place, began, error.coded)
            return (Event(kind="failed", code=error.code),)
        except Exception as error:  # noqa: BLE001 - whatever a stranger's request makes an engine do
            # not the error itself: it may repeat what was asked
            log.error("gateway request %s failed with an unexpected %s", request.id, type(error).__name__)
            return (Event(kind="failed", code=FAILED),)
        log.info(
            "gateway request %s of model %s: %s",
            request.id,
            request.placement.model,
            request.why or "answered",
        )
        return last


def open_gateway_requests(
    config: Config, process: MachineProcess
) -> tuple[GatewayRequests, Mapping[str, Placement]]:
    """The gateway requests of a machine and the queues they come by.

    Where there is no gateway, only that of a rubric's first draft, which the web app asks for by itself.
    """
    talks = Talks(process.leases.redis)
    gateway_requests = GatewayRequests(
        process.machine,
        process.engines,
        talks,
        process.gate,
        graded=lambda: in_use(process.machine, process.in_hand()),
        circuits=process.circuits,
    )
    process.gateway_requests, process.throughput.gateway_requests = (
        lambda: gateway_requests.in_hand,
        gateway_requests.at_work,
    )
    queues = queues_of(process.machine, process.engines) if gateway_requests.most > 0 else {}
    if not config.gateway.enabled:
        queues = {name: one for name, one in queues.items() if name == chat_queue(DRAFTING)}
    process.gateway_queues = tuple(queues)
    return gateway_requests, queues


def host(
    app: Celery, process: MachineProcess, gateway_requests: GatewayRequests, view: Callable[[], View]
) -> None:
    """Answer gateway requests from now on. `view` is what the machine knows of the cluster."""
    own = own_queue(process.machine.name)

    def pressed() -> int:
        handed = process.leases.lengths([own])[own]
        return crowded(view(), gateway_requests.in_hand, handed)

    gateway_requests.pressed = pressed

    @app.task(name=CHAT, bind=True, ignore_result=True)
    def chat(self: Task, request_id: str) -> None:
        gateway_requests.serve(request_id, lambda: _hand_back(self))


def look_after(process: MachineProcess, gateway_requests: GatewayRequests) -> None:
    """Keep the talks up until the process stops, in a thread of its own."""
    threading.Thread(
        target=gateway_requests.until_stopped, args=(process.stop,), name="gateway_requests", daemon=True
    ).start()


def taken_up(process: MachineProcess, gateway_requests: GatewayRequests) -> int:
    """The slots requests have; all of theirs while an engine is away, or it would take requests and fail.

    So, too, while a run is alone, or it would take requests and hand them back all the time.
    """
    able = not process.gate.shut and all(process.circuits.answers(stage) for stage in process.machine.stages)
    return gateway_requests.in_hand if able else gateway_requests.most


def crowded(view: View, gateway_requests: int, handed: int = 0) -> int:
    """How many of a machine's gateway requests must go, so that what it would take of grading has a slot.

    `handed` is what waits in the machine's own queue.
    """
    me = view.peers[view.me]
    beside = me.free - gateway_requests
    wanted = handed + sum(view.waiting.get(queue, 0) for queue in decide(view).queues)
    short = min(wanted, me.free) - max(0, beside)
    # beyond its best number of generations each one slows the others down
    return max(0, short, -beside if me.busy else 0)


def _hand_back(task: Task) -> None:
    request = task.request
    came_by = str((request.delivery_info or {}).get("routing_key"))
    try:
        task.signature_from_request(request, queue=came_by).apply_async()
    except AWAY as error:
        log.warning("%s, a gateway request was canceled: %s", why_away(error), error)
