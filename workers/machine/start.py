"""Starting the worker of one machine."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from celery import Celery, Task
from celery.exceptions import Ignore
from redis import Redis

from grading.broker import celery_app
from grading.broker.away import why_away
from grading.broker.canaries import Canaries
from grading.broker.dispatch import AWAY, open_leases
from grading.broker.signing import signer
from grading.config.machines import Placement
from grading.config.settings import Config, Machine
from grading.domain.stages import grading_stages
from grading.scheduling.cluster_view import Peer
from grading.shared.telemetry import working_on
from workers.celery_worker import Watch, keep_watch, register_canary, run_worker
from workers.machine import diagnostics, rehearsal, shadow_runs, strategy_comparison
from workers.machine.active_run import Message
from workers.machine.engines import open_engines
from workers.machine.gateway_requests.serving import (
    GatewayRequests,
    host,
    look_after,
    open_gateway_requests,
    taken_up,
)
from workers.machine.results import Inbox, remember_sent
from workers.machine.scheduling.queue_selection import MachineView, QueueOrder, QueueSelection
from workers.machine.worker import MachineProcess

log = logging.getLogger(__name__)
BREAK_OFF_S = 2.0
"""For engines to let go of what was handed back, before the process ends."""


def open_machine(config: Config, machine: Machine) -> MachineProcess:
    """The process of a machine with its engines; nothing is loaded or connected yet."""
    engines = open_engines(machine)
    leases = open_leases(config)
    send = open_inbox(config, machine, leases.redis).result
    return MachineProcess(machine, engines, leases, send, sent=remember_sent(config.redis.url))


def open_inbox(config: Config, machine: Machine, client: Redis) -> Inbox:
    """Where the server hears this machine."""
    return Inbox(client, signer(config.redis.url, machine.name))


def _message(task: Task, machine: str, inbox: Inbox) -> Message:
    request = task.request  # now: it belongs to this thread, and another one may have to send it back
    came_by = (request.delivery_info or {}).get("routing_key")
    settled = came_by == celery_app.own_queue(machine)
    job = request.kwargs.get("job", {})
    stage = job.get("stage", "")
    resend = partial(inbox.give_up, str(job.get("run_id")), str(job.get("secret", "")))

    return Message(home=str(stage if settled else came_by), resend=resend, settled=settled)


def start(config: Config, name: str, grace_s: float | None = None) -> None:
    """Run the worker of machine `name` until it is told to stop.

    Then it takes nothing new, and has `grace_s` seconds (the machine's own setting without it) to finish.
    """
    machine = config.machine(name)
    app = celery_app.celery_app(config.redis.url, config.redis.visibility_timeout_s, name)
    app.conf.worker_send_task_events = config.redis.monitor
    process = open_machine(config, machine)
    inbox = open_inbox(config, machine, process.leases.redis)
    ended = threading.Event()
    gateway_requests, gateway_queues = open_gateway_requests(config, process)
    listening = listen(config, machine, process, gateway_queues, gateway_requests)
    _take_by(app, listening, inbox)
    _answer_tasks(app, process, listening, inbox)
    host(app, process, gateway_requests, listening.view)

    def ready(_consumer: Any) -> None:
        _begin_threads(process, listening, gateway_requests)
        _say_ready(inbox)

    def stopping() -> None:
        process.stopping = True
        gateway_requests.close()
        patience = machine.grace_s if grace_s is None else grace_s
        threading.Thread(target=_end_after, args=(process, ended, patience), daemon=True).start()

    queues = [*celery_app.machine_queues(name, list(machine.stages)), *gateway_queues]
    try:
        run_worker(app, name, queues, machine.slots, ready, stopping)
    finally:
        process.close()
        gateway_requests.close()
        ended.set()


def _say_ready(inbox: Inbox) -> None:
    try:
        inbox.ready()
    except AWAY as error:
        log.warning("%s, the sweeper will requeue these runs: %s", why_away(error), error)


def _take_by(app: Celery, listening: QueueSelection, inbox: Inbox) -> None:
    """The consumer asks `listening` which queues to read, each time before it takes a message."""
    app.conf.broker_transport_options = {
        **app.conf.broker_transport_options,
        "queue_order_strategy": lambda: QueueOrder(listening),
        "returned": inbox.returned,
    }


def _answer_tasks(app: Celery, process: MachineProcess, listening: QueueSelection, inbox: Inbox) -> None:
    """What the worker does with a message: a run, a canary, an examination."""
    name = process.machine.name

    @app.task(name=celery_app.RUN, bind=True)
    def run(self: Task, job: dict[str, Any]) -> dict[str, Any]:
        if isinstance(job, dict):  # else it is refused below
            listening.begun(str(job.get("stage")))
        with working_on(submission=str(self.request.get(celery_app.SUBMISSION) or "")[:32]):
            result = process.run(job, _message(self, name, inbox))
        if result is None:
            raise Ignore  # the server sends it to another machine
        return result

    register_canary(app, Canaries(process.leases.redis), celery_app.own_queue(name))
    diagnostics.register(app, process)
    rehearsal.register(app, process)
    shadow_runs.register(app, process)
    strategy_comparison.register(app, process)


def _begin_threads(
    process: MachineProcess, listening: QueueSelection, gateway_requests: GatewayRequests
) -> None:
    """All that goes on beside the runs, until the process stops."""
    # first of all and whatever Redis answers: a machine that sends no heartbeats loses all its work
    _thread("heartbeat", process.send_heartbeats_until_stopped)

    def paused() -> bool:
        return process.stopping or process.drained

    own, slots = celery_app.own_queue(process.machine.name), process.machine.slots
    keep_watch(Watch(Canaries(process.leases.redis), own, slots, paused), process.stop)
    if process.sent:
        _thread("sent results", process.sent.until_stopped, process.stop)
    _thread("telling", process.telling.until_stopped, process.stop)
    _thread("load", process.get_ready)
    _thread("throughput", process.throughput.until_stopped, process.stop)
    _thread("listening", listening.until_stopped, process.stop)
    look_after(process, gateway_requests)


def _thread(name: str, body: Callable[..., None], *args: threading.Event) -> None:
    threading.Thread(target=body, args=args, name=name, daemon=True).start()


def listen(
    config: Config,
    machine: Machine,
    process: MachineProcess,
    gateway_queues: Mapping[str, Placement],
    gateway_requests: GatewayRequests,
) -> QueueSelection:
    """What decides which queues this machine reads; told of by its heartbeats."""
    stages = grading_stages(machine.stages)

    def able() -> tuple[str, ...]:
        return tuple(stage for stage in stages if process.circuits.closed(stage))

    listening = QueueSelection(
        MachineView(
            machine,
            grading_stages(config.stages),
            partial(process.leases.look, mine=celery_app.stage_queues(list(stages))),
            hand=process.in_hand,
            peer=partial(_peer, machine, process, stages),
            expect=process.throughput.expect,
            slots=process.throughput.limit,
            able=able,
            gateway_requests=gateway_queues,
            most_gateway_requests=gateway_requests.most,
            gateway_requests_in_hand=lambda: taken_up(process, gateway_requests),
            give_way=process.give_way,
        )
    )
    process.listen, process.look_again = listening.admit, listening.changed
    process.chosen = lambda: (listening.chosen, listening.choice.why)
    return listening


def _peer(machine: Machine, process: MachineProcess, stages: tuple[str, ...]) -> Peer:
    """This machine, as others see it when they decide."""
    profiles = process.throughput.speed_profiles()
    return Peer(
        machine.name,
        process.throughput.limit(),
        stages,
        speed_profiles={stage: profiles[stage] for stage in stages if stage in profiles},
        **process.routing_facts().facts(),
    )


def _end_after(process: MachineProcess, ended: threading.Event, grace_s: float) -> None:
    """Hand back what is not done in time, break it off and end, whatever the engine does."""
    process.tell()
    if ended.wait(grace_s):
        return
    try:
        process.leave()  # first, or others hand it on to this machine again
        back = process.hand_back()
        log.warning(
            "%d runs did not finish within the %g s of the warm shutdown and are requeued", back, grace_s
        )
        if not process.break_off(BREAK_OFF_S):
            log.warning("not all of these runs could be canceled")
    finally:
        os._exit(0)
