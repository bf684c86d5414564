"""What the sweeper does for heartbeats: its own, and the canaries."""

from __future__ import annotations

from grading.broker import celery_app
from grading.broker.canaries import Canaries
from grading.broker.part_heartbeats import me
from grading.shared.code_version import code_folder, software
from workers.server.context import Server


def sweep(server: Server) -> None:
    """The sweeper's part: say that it lives, and send canaries to whoever sends heartbeats and takes work."""
    canaries = Canaries(server.dispatch.registry.redis)
    canaries.heartbeat("sweeper", me(), software(), folder=code_folder())
    queues = {
        celery_app.own_queue(b.machine)
        for b in server.dispatch.registry.heartbeats()
        if b.alive and not b.drained
    }
    alive = {part.part for part in canaries.parts() if part.alive}
    queues |= {name for name in (celery_app.STORE, celery_app.SANDBOX) if name in alive}
    for name in sorted(queues):
        if canaries.due(name):
            # without an expiry, which would ask the machine's own clock; there is never more than one
            server.dispatch.celery.send_task(celery_app.CANARY, queue=name, ignore_result=True)
