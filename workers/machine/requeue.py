"""Runs that go back, as their engine is away, this process ends, or grading comes first.

Others take them, or this machine when it is idle again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from grading.broker.away import why_away
from grading.broker.dispatch import AWAY
from grading.broker.leases import Leases
from grading.domain.jobs import Result
from grading.domain.stages import is_background
from grading.scheduling.circuit_breaker import AWAY as ENGINE_AWAY
from workers.machine.active_run import Message, RunInHand
from workers.machine.circuits import CircuitBreakers

log = logging.getLogger(__name__)
PAUSE_S = 1.0
"""For a run that comes while its engine is away, before it goes back: it may come here again."""
MOST_KNOWN = 10_000


class Requeue:
    """Sends runs back at no cost for them: none of their tries, none of their beginnings. Thread-safe."""

    def __init__(self, leases: Leases, circuits: CircuitBreakers, machine: str, process: str) -> None:
        self._leases = leases
        self._machine = machine
        self._process = process
        self._circuits = circuits
        self._known: dict[str, None] = {}
        """Runs that met an engine that was away, the oldest first."""

    def unasked(self, stage: str, message: Message | None) -> bool:
        """Whether a run that comes now went back; nobody has claimed it."""
        if message is None or self._circuits.wait_closed(stage, PAUSE_S):
            return False
        try:
            message.resend(message.home)
        except AWAY as error:
            log.warning("%s, a run is started although its engine is unavailable: %s", why_away(error), error)
            return False
        return True

    def call_off(self, runs: Iterable[RunInHand]) -> None:
        """Those of runs that only wait for their turn, and for nothing."""
        for working in runs:
            waits = working.phase == "waiting" and working.message is not None
            if waits and not self._circuits.closed(working.job.stage):
                working.unserved = True
                working.cancel.cancel()

    def give_way(self, runs: Iterable[RunInHand]) -> None:
        """Those of runs that machines do in the background go back: a run of grading comes."""
        for working in runs:
            if is_background(working.job.stage) and working.message is not None:
                working.unserved = True
                working.cancel.cancel()

    def refused(self, working: RunInHand, result: Result) -> bool:
        """Whether a run that failed before any engine saw it went back.

        Each may do so once: an engine that is away for one run only, as behind a proxy that gives up on long
        answers, is a failure of that run.
        """
        run_id = working.job.run_id
        if result.error not in ENGINE_AWAY:
            return False
        if working.handed_back:
            return True  # its message is on its way already, and others may have begun it
        if run_id in self._known:
            return False
        self._known[run_id] = None
        if len(self._known) > MOST_KNOWN:
            self._known.pop(next(iter(self._known)), None)
        return self._send_back(working)

    def unfinished(self, working: RunInHand) -> dict[str, str] | None:
        """What becomes of a run that was cancelled: its message comes again, or others have the run."""
        if working.taken_away and not working.handed_back:
            return {"superseded": working.job.run_id}
        if working.unserved and not working.handed_back:
            self._send_back(working)
        return None

    def hand_back(self, runs: Iterable[RunInHand]) -> int:
        """Send these back, as this process ends; how many it were. What has no message is found missing."""
        messages = {}
        for working in runs:
            if working.message is not None:
                messages[working.job.run_id] = working.message
                working.handed_back = True
        back = 0
        try:
            free = self._leases.hand_back(self._machine, self._process, list(messages))
            for message in (one for run_id, one in messages.items() if run_id in free):
                message.resend(message.home)
                back += 1
        except AWAY as error:
            log.warning(
                "%s, %d runs could not be requeued, the sweeper will requeue them: %s",
                why_away(error),
                len(messages) - back,
                error,
            )
        return back

    def _send_back(self, working: RunInHand) -> bool:
        """False without a message, and when Redis is away: then the sweeper finds the run missing.

        Of a run that another process has by now nothing is sent: that one answers.
        """
        run_id = working.job.run_id
        if working.message is None:
            return False
        try:
            # first, or who gets it finds it claimed
            if not self._leases.unclaim(self._machine, self._process, run_id):
                log.info("run %s is not requeued: another machine has its lease", run_id)
                return True
            working.message.resend(working.message.home)
        except AWAY as error:
            log.warning("%s, a run could not be requeued: %s", why_away(error), error)
            return False
        log.info("run %s is requeued: its engine is unavailable, or grading needs its slot", run_id)
        return True
