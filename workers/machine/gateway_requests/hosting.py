"""Puts guests (`workers/machine/gateway_requests/requests.py`) and a machine's process together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from celery import Celery, Task

from grading.broker.celery_app import own_queue
from grading.broker.dispatch import AWAY
from grading.broker.gateway_requests import CHAT, DRAFTING, Talks, chat_queue
from grading.config.machines import Placement
from grading.config.settings import Config
from grading.scheduling.cluster_view import View
from grading.scheduling.routing import decide
from workers.machine.gateway_requests.requests import Guests, queues_of
from workers.machine.process import MachineProcess
from workers.machine.scheduling.queue_selection import in_use

log = logging.getLogger(__name__)


def open_guests(config: Config, process: MachineProcess) -> tuple[Guests, Mapping[str, Placement]]:
    """The guests of a machine and the queues they come by.

    Where there is no gateway, only that of a rubric's first draft, which the web app asks for by itself.
    """
    talks = Talks(process.leases.redis)
    guests = Guests(
        process.machine,
        process.engines,
        talks,
        process.gate,
        graded=lambda: in_use(process.machine, process.in_hand()),
        circuits=process.circuits,
    )
    process.guests, process.pacing.guests = lambda: guests.in_hand, guests.at_work
    queues = queues_of(process.machine) if guests.most > 0 else {}
    if not config.gateway.enabled:
        queues = {name: one for name, one in queues.items() if name == chat_queue(DRAFTING)}
    return guests, queues


def host(app: Celery, process: MachineProcess, guests: Guests, view: Callable[[], View]) -> None:
    """Answer guests from now on. `view` is what the machine knows of the cluster."""
    own = own_queue(process.machine.name)

    def pressed() -> int:
        handed = process.leases.lengths([own])[own]
        return crowded(view(), guests.in_hand, handed)

    guests.pressed = pressed

    @app.task(name=CHAT, bind=True, ignore_result=True)
    def chat(self: Task, guest: str) -> None:
        guests.serve(guest, lambda: _hand_back(self))


def look_after(process: MachineProcess, guests: Guests) -> None:
    """Keep the talks up until the process stops, in a thread of its own."""
    threading.Thread(target=guests.until_stopped, args=(process.stop,), name="guests", daemon=True).start()


def taken_up(process: MachineProcess, guests: Guests) -> int:
    """The slots guests have; all of theirs while an engine is away, or it would draw guests and fail them.

    So, too, while a run is alone, or it would draw guests and hand them back all the time.
    """
    able = not process.gate.shut and all(process.circuits.closed(stage) for stage in process.machine.stages)
    return guests.in_hand if able else guests.most


def crowded(view: View, guests: int, handed: int = 0) -> int:
    """How many of a machine's guests must go, so that what it would take of grading has a slot.

    `handed` is what waits in the machine's own queue.
    """
    me = view.peers[view.me]
    beside = me.free - guests
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
        log.warning("redis is away, a guest is given up: %s", error)
