"""The lab: runs what a plan asks for, unless the same was run before."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import ValidationError

from grading.store import Store, trials
from grading.trials.model import Request, Trial
from grading.trials.plan import Plan
from workers.checks.files import Shelf, shelve
from workers.checks.trial import Trials, repeatable

log = logging.getLogger(__name__)
OWN = "work:"
"""What keys of requests for students' work begin with; the others are the instructor's."""


@dataclass(frozen=True)
class Lab:
    """Trials with a memory in SQL. Any number of threads may use it."""

    store: Store
    trials: Trials
    shelf: Shelf
    _under_way: dict[str, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, plan: Plan, submission_id: str) -> Mapping[str, Trial]:
        """The trial of each request of a plan."""
        return {
            name: self._trial(request, submission_id if name.startswith(OWN) else None)
            for name, request in plan.requests.items()
        }

    def _trial(self, request: Request, submission_id: str | None) -> Trial:
        """From the memory, or by running it; who asks for the same at the same time waits for the first."""
        problem = self.trials.problem(request.work.language)
        if problem:
            return Trial(end="not run", reason=problem, sandbox=self.trials.sandbox.name)
        key = self.key(request)
        with self._alone(key):
            known = self._known(key)
            if known is not None:
                return known
            trial = self._run(request)
            if repeatable(trial):
                with self.store.write() as session:
                    trials.keep(session, key, submission_id, trial.model_dump(mode="json"))
            return trial

    def key(self, request: Request) -> str:
        """SHA-256 over all that decides the outcome: work, tests, files, limits, and what it runs in."""
        content = request.model_dump(mode="json")
        image = self.trials.image(request.work.language)
        return hashlib.sha256(json.dumps([content, image], sort_keys=True).encode()).hexdigest()

    def _known(self, key: str) -> Trial | None:
        with self.store.read() as session:
            content = trials.kept(session, key)
        try:
            return None if content is None else Trial.model_validate(content)
        except ValidationError:
            log.warning("a kept trial has a shape of another version; it is run again")
            return None

    def _run(self, request: Request) -> Trial:
        shelve(self.shelf, request.files.values(), self._contents)
        trial = self.trials.run(request, self.shelf.mounts(request.files))
        log.info("ran %s in %.1f s: %s %s", request.work.document, trial.seconds, trial.end, trial.reason)
        return trial

    def _contents(self, names: list[str]) -> Mapping[str, bytes]:
        with self.store.read() as session:
            return trials.contents(session, names)

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        with self._lock:
            own = self._under_way.setdefault(key, threading.Lock())
        with own:
            yield
        with self._lock:
            if not own.locked():
                self._under_way.pop(key, None)
