"""Asking machines: a task in each machine's own queue, whose answer the machine leaves in Redis."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from grading.broker.canaries import examination_key
from grading.broker.celery_app import own_queue
from grading.broker.dispatch import Dispatch
from grading.broker.machine_status import MachineState

LOOK_EVERY_S = 0.1
Answer = Mapping[str, Any]


def ask_machines(
    dispatch: Dispatch,
    task: str,
    names: Sequence[str],
    arguments: Sequence[Any],
    seconds: float,
    worth_waiting: Callable[[MachineState], bool],
) -> dict[str, Answer]:
    """Send a task to machines, all at once; their answers by name, without those that do not come in time.

    The task gets an id of its own, the arguments, and the moment until which somebody waits. Waiting ends
    early when it is worth it for none of the machines that have not answered. An answer that cannot be read
    is empty. Raises redis errors.
    """
    until = dispatch.registry.time() + seconds
    open_ = {uuid.uuid4().hex: name for name in names}
    for question, name in open_.items():
        args = [question, *arguments, until]
        dispatch.celery.send_task(task, args=args, queue=own_queue(name), ignore_result=True)
    found: dict[str, Answer] = {}
    end = time.monotonic() + seconds
    while open_ and time.monotonic() < end:
        keys = [examination_key(name, question) for question, name in open_.items()]
        rows = cast("list[str | None]", dispatch.registry.redis.mget(keys))
        for question, row in zip(list(open_), rows, strict=True):
            if row is not None:
                found[open_.pop(question)] = _read(row)
        waiting = set(open_.values())
        if not waiting or not any(one.name in waiting and worth_waiting(one) for one in dispatch.machines()):
            break
        time.sleep(LOOK_EVERY_S)
    return found


def _read(row: str) -> Answer:
    """A machine's answer; nothing in it when it is none."""
    try:
        content = json.loads(row)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
