"""Results of runs on their way to the server, with the failures of runs that no engine did."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from redis import Redis

from grading.broker import celery_app
from grading.broker.away import why_away
from grading.broker.connections import when_primary_changes
from grading.broker.dispatch import AWAY
from grading.broker.leases import result_key
from grading.broker.signing import Kind, Signer
from grading.config import redis_url
from grading.domain.errors import EngineError, JobInvalid
from grading.domain.jobs import Job, Provenance, Result
from workers.machine.messages import EXHAUSTED, OTHER_VERSION, STAGE_NOT_HERE

log = logging.getLogger(__name__)
SEND_FOR_S = 600.0
"""How long a finished result is offered to a Redis that is away, before the work is given up."""


KEEP_S = 86_400
"""How long the server finds a result; it deletes what it wrote down."""


@dataclass(frozen=True)
class Inbox:
    """Where the server hears this machine, signed. Methods raise redis errors."""

    redis: Redis
    signer: Signer

    def result(self, content: Mapping[str, Any], secret: str) -> None:
        """Leave the result of a run with this secret in Redis, and say so."""
        run_id = content["run_id"]
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.set(
                result_key(self.signer.machine, run_id), self._sign("result", content, secret), ex=KEEP_S
            )
            pipe.lpush(self._key, run_id)
            pipe.execute()

    def give_up(self, run_id: str, secret: str, to: str) -> None:
        """Have the server send a run to another queue, as it is not done here."""
        self.redis.lpush(self._key, self._sign("return", {"run_id": run_id, "to": to}, secret))

    def returned(self, message: Any) -> tuple[str, str] | None:
        """The key and the words with which a run goes back whose message was taken and not begun."""
        try:
            _, kwargs, _ = json.loads(base64.b64decode(message["body"]))
            job = kwargs["job"]
            said = self._sign("return", {"run_id": job["run_id"], "to": ""}, job["secret"])
        except (ValueError, LookupError, TypeError, AttributeError):
            return None  # a canary, or a gateway request: who sent it sends another
        return self._key, said

    def ready(self) -> None:
        """Say that this machine takes work now."""
        self.redis.lpush(self._key, self._sign("ready", {}))

    @property
    def _key(self) -> str:
        return celery_app.inbox(self.signer.machine)

    def _sign(self, kind: Kind, content: Mapping[str, Any], secret: str = "") -> str:
        return self.signer.sign(kind, content, secret)


LOOK_S = 1.0
REMEMBER_S = 120.0
"""A primary that is cut off takes results for some seconds, which its successor never gets."""
MOST_REMEMBERED = 256


SentResult = tuple[float, Callable[[], None]]
"""When it was sent, and what sends it once more."""


class SentResults:
    """What was sent lately, and how it is sent again, as a successor of Redis may not have it.

    The server records a result once, however often it comes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sent: deque[SentResult] = deque(maxlen=MOST_REMEMBERED)
        self._lock = threading.Lock()
        self._lost = threading.Event()

    def remember(self, again: Callable[[], None]) -> None:
        """A result was sent; `again` tries once to send it once more, and raises one of AWAY."""
        with self._lock:
            self._sent.append((self._clock(), again))

    def forget(self) -> None:
        """Drop what is too old to be sent again: it contains students' work."""
        with self._lock:
            while self._sent and not self._wanted(self._sent[0]):
                self._sent.popleft()

    def doubt(self) -> None:
        """Another Redis became the primary."""
        self._lost.set()

    def until_stopped(self, stop: threading.Event) -> None:
        """Send again whenever there is doubt, and forget what is old; the body of a thread."""
        while not stop.is_set():
            self.forget()
            if self._lost.wait(LOOK_S):
                self._lost.clear()
                self.send_again(stop)

    def send_again(self, stop: threading.Event) -> None:
        """All of the last two minutes; what cannot be sent meanwhile is found missing by the server.

        The newest first: their messages may lie in the queues of the new primary and be taken again. Ends
        when there is doubt once more, as then all must be sent to yet another primary.
        """
        with self._lock:
            left = list(reversed(self._sent))
        log.info("redis has a new primary, sending %d results again", len(left))
        while left:
            left = [one for one in left if self._wanted(one) and not _sent(one)]
            if left and (stop.is_set() or self._lost.wait(LOOK_S)):
                return

    def _wanted(self, one: SentResult) -> bool:
        return self._clock() - one[0] <= REMEMBER_S


def remember_sent(url: str) -> SentResults | None:
    """What remembers results while the primary of Redis may change. None for a Redis without a successor."""
    if not redis_url.watched(url):
        return None
    made = SentResults()
    when_primary_changes(url, made.doubt)
    return made


def _sent(one: SentResult) -> bool:
    try:
        one[1]()
    except AWAY as error:
        log.warning("%s, a result could not be sent again yet: %s", why_away(error), error)
        return False
    return True


Send = Callable[[Mapping[str, Any], str], None]
"""Sends a result of a run that has this secret."""


def offer(send: Send, content: Mapping[str, Any], secret: str, stop: threading.Event) -> None:
    """Send a result, for ten minutes if need be or until `stop`; then raises one of AWAY."""
    waited, wait = 0.0, 0.2
    while True:
        try:
            send(content, secret)
            return
        except AWAY as error:
            if waited >= SEND_FOR_S or stop.wait(wait):
                raise
            log.warning("%s, retrying to send a result: %s", why_away(error), error)
        waited, wait = waited + wait, min(wait * 2, 5.0)


def without_prompt(result: Result) -> dict[str, Any]:
    """A result as JSON; the server has the prompt already, which is large."""
    return result.model_dump(mode="json", exclude={"prompt"})


def exhausted(job: Job, provenance: Provenance) -> Result:
    """The failure of a job that was begun too often, for good."""
    failure = failed(job.run_id, job.round_id, job.stage, provenance, EngineError(EXHAUSTED))
    return failure.model_copy(update={"error": "exhausted", "retry": "never"})


def not_here(job: Job, provenance: Provenance) -> Result:
    """The failure of a job whose stage this machine does not do."""
    return failed(job.run_id, job.round_id, job.stage, provenance, JobInvalid(STAGE_NOT_HERE))


def not_understood(run_id: str, round_id: str, stage: str, provenance: Provenance) -> Result:
    """The failure of a run whose job this version cannot read."""
    return failed(run_id, round_id, stage, provenance, JobInvalid(OTHER_VERSION))


def failed(run_id: str, round_id: str, stage: str, provenance: Provenance, error: EngineError) -> Result:
    """A failure that another machine, or this one later, may not have."""
    return Result(
        run_id=run_id,
        round_id=round_id,
        stage=stage,
        ok=False,
        error=error.code,
        message=error.coded.message,
        message_code=error.coded.code,
        params=error.coded.params,
        provenance=provenance,
    )
