"""The Celery application's settings and names: queues, tasks, routing by name."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from celery import Celery

from grading.broker import kombu_transport
from grading.broker.signing import own_user
from grading.config import redis_url as urls

STORE = "store"
SANDBOX = "sandbox"
RUN = "grader.run"
PREPARE = "grader.prepare"
EXECUTE = "grader.execute"
PRECHECK = "grader.precheck"
ADMIT = "grader.admit"
CANARY = "grader.canary"
EXAMINE = "grader.examine"
REHEARSE = "grader.rehearse"
SHADOW = "grader.shadow_runs"
COMPARE = "grader.compare_strategies"
SUBMISSION = "grader_submission"
"""A header of messages that says which submission they are about."""
SENT = "grader_sent"
"""A header of runs: when they were sent, by Redis' clock; `LOOK` (grading/broker/lua_scripts.py) reads it."""
NEXT = kombu_transport.NEXT
INBOX = "results."
"""And a machine's name: a list of what that machine tells the server."""


def stage_queue(stage: str, priority: str) -> str:
    """The queue of a stage: its name for interactive work, `<stage>.batch` for the rest."""
    return f"{stage}.batch" if priority == "batch" else stage


def stage_queues(stages: list[str]) -> list[str]:
    """The queues a machine listens to, those with waiting people first."""
    return [stage_queue(s, "interactive") for s in stages] + [stage_queue(s, "batch") for s in stages]


def sandbox_queue(priority: str) -> str:
    """The queue of work that must be run before it is graded."""
    return stage_queue(SANDBOX, priority)


SANDBOX_QUEUES = (SANDBOX, f"{SANDBOX}.batch")
"""Both, those with waiting people first."""


def own_queue(machine: str) -> str:
    """The queue of runs that another machine handed to this one."""
    return f"machine.{machine}"


def inbox(machine: str) -> str:
    """Where a machine puts what it tells the server; nobody else writes there."""
    return f"{INBOX}{machine}"


def machine_queues(machine: str, stages: list[str]) -> list[str]:
    """All queues a machine listens to, what was handed to it first."""
    return [own_queue(machine), *stage_queues(stages)]


def unsaid() -> dict[str, str]:
    """Options that keep students' work out of a message's headers, where Celery repeats arguments as text."""
    return {"argsrepr": "(…)", "kwargsrepr": "{…}"}


def celery_app(redis_url: str, visibility_timeout_s: int, machine: str = "") -> Celery:
    """The application, connected to nothing yet; with `machine`, what that machine's worker may do of it.

    A machine only takes messages: its results go to its inbox, and what it did not do is found by its lease.

    These settings lost nothing when workers and Redis were killed in every way tried: messages are
    acknowledged after the work, unacknowledged ones are restored.
    """
    kombu_transport.install()
    # results are read in SQL
    app = Celery("grader", broker=_broker(redis_url), backend="disabled://", set_as_current=False)
    app.conf.update(_reliable(visibility_timeout_s))
    if urls.watched(redis_url):
        _by_sentinels(app, urls.parse(redis_url))
    app.conf.update(
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=STORE,
        task_create_missing_queues=True,
        worker_hijack_root_logger=False,
        worker_send_task_events=False,  # redis.monitor
        # events tell results as text: not a word of those
        task_annotations={"*": {"resultrepr_maxsize": 0}},
        task_publish_retry_policy={"max_retries": 2, "interval_start": 0, "interval_max": 0.5},
        timezone="UTC",
    )
    if machine:
        # what operators ask by Celery is answered in queues of theirs, which a machine's user may not write
        app.conf.worker_enable_remote_control = not own_user(redis_url)
        app.conf.broker_transport_options = {**app.conf.broker_transport_options, **_takes_only(machine)}
    return app


def _broker(redis_url: str) -> str:
    """The address as kombu reads it: of the sentinels only the first, as the channel knows all of them."""
    if not urls.watched(redis_url):
        return redis_url
    address = urls.parse(redis_url)
    host, port = address.hosts[0]
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    user, password = quote(address.user, safe=""), quote(address.password, safe="")
    return f"sentinel://{user}:{password}@{place}/{address.database}"


def _by_sentinels(app: Celery, address: urls.Address) -> None:
    """A primary that hangs is given up sooner: there is a successor."""
    if address.tls is not None:
        app.conf.broker_use_ssl = dict(address.tls)
    app.conf.broker_transport_options = {
        **app.conf.broker_transport_options,
        "master_name": address.name,
        "address": address,
        "socket_timeout": 5,
        "health_check_interval": 5,
    }


def _takes_only(machine: str) -> dict[str, Any]:
    """What was handed out to a machine is its own affair: others cannot read it, nor give it out again."""
    names = ("unacked_key", "unacked_index_key")
    return {"takes_only": True, **{name: handed_out(machine)[i] for i, name in enumerate(names)}}


def handed_out(machine: str) -> tuple[str, str]:
    """Where kombu keeps the messages that a machine took and did not settle yet, and their times."""
    return f"grader:unacked:{machine}", f"grader:unacked-times:{machine}"


def _reliable(visibility_timeout_s: int) -> dict[str, Any]:
    """Nothing is lost, whatever dies, and Redis is asked again until it is back."""
    return {
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "worker_prefetch_multiplier": 1,
        "broker_transport_options": {
            "visibility_timeout": visibility_timeout_s,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
            "queue_order_strategy": "priority",
            "socket_connect_timeout": 5,
            "socket_timeout": 30,
        },
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_pool_acquire_timeout": 5,
    }
