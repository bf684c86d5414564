"""How the web app asks a model for something behind all grading: by the queues of guests, gateway or not."""

from __future__ import annotations

from app.gateway import Door
from grading.broker import celery_app
from grading.broker.dispatch import Dispatch
from grading.broker.gateway_requests import CHAT, Talks, chat_queue
from grading.config.settings import Config
from grading.store import Store


def open_door(config: Config, store: Store, dispatch: Dispatch) -> Door:
    """The door of the web app, over the connections it has anyway."""

    def send(guest: str, model: str) -> None:
        to, quiet = chat_queue(model), celery_app.unsaid()
        dispatch.celery.send_task(CHAT, args=[guest], task_id=guest, queue=to, ignore_result=True, **quiet)

    return Door(config, store, dispatch.registry, Talks(dispatch.registry.redis), send)
