"""Claims of runs by one process of a machine: taken in Redis, handed on, given back, finished.

Without Redis work goes on: SQL accepts one result only, so a run without a lease costs time at most.
"""

from __future__ import annotations

import logging

from redis.exceptions import RedisError

from grading.broker.away import why_away
from grading.broker.celery_app import own_queue
from grading.broker.dispatch import AWAY
from grading.broker.heartbeats import Answer, Claim, Lease
from grading.broker.leases import Leases
from workers.machine.active_run import RunInHand

log = logging.getLogger(__name__)


class Claims:
    """The claims of one process of a machine. Nothing here raises redis errors."""

    def __init__(self, leases: Leases, machine: str, process: str) -> None:
        self._leases = leases
        self._machine = machine
        self._process = process

    def place(self, working: RunInHand) -> Answer:
        """Claim the run, or hand it on to where it belongs; when that fails, it is done here."""
        message = working.message
        claim = self._claim(working, hand_on=message is not None and not message.settled)
        if claim.answer != "elsewhere" or message is None:
            return claim.answer
        try:
            message.resend(own_queue(claim.machine))
        except AWAY as error:
            log.warning("%s, a run of machine %s is executed here: %s", why_away(error), claim.machine, error)
            return self._claim(working, hand_on=False).answer
        return "elsewhere"

    def _claim(self, working: RunInHand, *, hand_on: bool) -> Claim:
        job = working.job
        try:
            return self._leases.claim(
                self.lease(working), job.round_id, hand_on=hand_on, avoid=job.avoid, alone=job.alone
            )
        except RedisError as error:
            log.warning("%s, executing a run without a lease: %s", why_away(error), error)
            working.leased = False
            return Claim("granted")

    def lease(self, working: RunInHand) -> Lease:
        """The lease of a run as it is now."""
        return Lease(
            working.job.run_id,
            self._machine,
            self._process,
            working.job.stage,
            phase=working.phase,
            tokens=working.tokens,
            round_id=working.job.round_id,
            prompt_tokens=working.prompt_tokens,
        )

    def give_back(self, working: RunInHand) -> None:
        """The run was not done; its lease ends."""
        try:
            self._leases.give_back(self.lease(working))
        except RedisError as error:
            _stays(error)

    def finish(self, working: RunInHand) -> None:
        """The run's result was sent; its lease ends, and it is not begun again."""
        try:
            self._leases.finish(self.lease(working))
        except RedisError as error:
            _stays(error)


def _stays(error: RedisError) -> None:
    log.warning("%s, a lease could not be released and will expire: %s", why_away(error), error)
