"""The lab: runs what a plan asks for, unless the same was run before."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date

from pydantic import ValidationError
from sqlalchemy.exc import IntegrityError

from grading.domain.errors import SandboxUnavailable
from grading.execution.model import Request, Trial
from grading.execution.plan import Plan
from grading.store import Store, blobs
from grading.store.rounds import execution_cache
from workers.sandbox.files import Shelf
from workers.sandbox.session import Trials, repeatable

log = logging.getLogger(__name__)
OWN = "work:"
"""What keys of requests for students' work begin with; the others are the instructor's."""
CLOCK = re.compile(r"\b(?:Sys\.Date|Sys\.time|today|now|utcnow|strftime|time\.time|localtime)\s*\(")
"""Calls that ask for the day or the time, in R and Python."""
LARGEST = 4 << 20
"""Bytes of a trial that is kept; a larger one is run again when it is asked for."""


@dataclass(frozen=True)
class Lab:
    """Trials with a memory in SQL. Any number of threads may use it."""

    store: Store
    trials: Trials
    shelf: Shelf
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Contents by SHA-256 that the store does not hold yet: of an assignment that is being imported."""
    today: Callable[[], date] = date.today
    _worked: set[str] = field(default_factory=set)
    """Languages in which something could be run: what keeps them from it now will pass."""
    _under_way: dict[str, threading.Lock] = field(default_factory=dict)
    _users: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, plan: Plan, submission_id: str | None) -> Mapping[str, Trial]:
        """The trial of each request of a plan; without a submission, all of it is the instructor's.

        A server without a sandbox, or without a language, gives trials that were not run. One that had them
        and cannot use them now raises SandboxUnavailable.
        """
        return {
            name: self._trial(request, submission_id if name.startswith(OWN) else None)
            for name, request in plan.requests.items()
        }

    def _trial(self, request: Request, submission_id: str | None) -> Trial:
        """From the memory, or by running it; who asks for the same at the same time waits for the first."""
        language = request.work.language
        problem = self.trials.problem(language)
        if problem and language not in self._worked:
            return Trial(end="not run", reason=problem, sandbox=self.trials.sandbox.name)
        if problem:
            raise SandboxUnavailable(problem)
        self._worked.add(language)
        key = self.key(request)
        with self._alone(key):
            known = self._known(key)
            if known is not None:
                return known
            trial = self._run(request)
            if repeatable(trial):
                self._keep(key, submission_id, trial)
            return trial

    def key(self, request: Request) -> str:
        """SHA-256 over all that decides the outcome: work, tests, files, limits, and what it runs in.

        Code that asks for the day is run anew on another day: the solution's outputs of last week are not
        what a work has to put out today.
        """
        content = request.model_dump(mode="json")
        decides = [content, self.trials.image(request.work.language)]
        if any(CLOCK.search(cell.source) for cell in request.work.cells):
            decides.append(self.today().isoformat())
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def _known(self, key: str) -> Trial | None:
        with self.store.read() as session:
            content = execution_cache.kept(session, key)
        try:
            return None if content is None else Trial.model_validate(content)
        except ValidationError:
            log.warning("a kept trial has a shape of another version; it is run again")
            return None

    def _keep(self, key: str, submission_id: str | None, trial: Trial) -> None:
        content = trial.model_dump_json()
        if len(content) > LARGEST:
            return
        try:
            with self.store.write() as session:
                execution_cache.keep(session, key, submission_id, json.loads(content))
        except IntegrityError:
            log.info("work that was erased while it was run is not kept")

    def _run(self, request: Request) -> Trial:
        try:
            with self.shelf.holding(request.files, self._contents) as mounts:
                trial = self.trials.run(request, mounts)
        except OSError as error:  # the disk is full, or somebody cleared it up
            raise SandboxUnavailable(f"Files could not be laid out: {error.strerror or error}.") from error
        language, cells = request.work.language, len(request.work.cells)
        log.info("ran %d cells of %s in %.1f s: %s", cells, language, trial.seconds, trial.end)
        return trial

    def _contents(self, names: list[str]) -> Mapping[str, bytes]:
        known = {name: self.files[name] for name in names if name in self.files}
        with self.store.read() as session:
            return {
                **blobs.contents(session, [name for name in names if name not in known]),
                **known,
            }

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        with self._lock:
            own = self._under_way.setdefault(key, threading.Lock())
            self._users[key] += 1
        try:
            with own:
                yield
        finally:
            with self._lock:
                self._users[key] -= 1
                if not self._users[key]:
                    del self._users[key], self._under_way[key]
