"""Runs the requests of a plan in sandboxes: executions are cached in SQL, input files on disk."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path, PurePosixPath
from types import TracebackType

from pydantic import ValidationError
from sqlalchemy.exc import IntegrityError

from grading.domain.errors import FileDamaged, FilesUnavailable, SandboxUnavailable
from grading.execution.plan import Plan
from grading.execution.values import Execution, Request
from grading.store import Store, blobs
from grading.store.rounds import preparing
from workers.sandbox.backends.base import Mount
from workers.sandbox.request_runner import Executor, repeatable

WORK = PurePosixPath("/box")
DATA = "data"
LONGEST_NAME, LONGEST_PATH = 255, 2_000
PREFIX = "grader-sandbox-"
MOST_BYTES = 1 << 30
"""Of files that are kept for the next who needs them."""


class Shelf:
    """A private folder of read-only files, one a content; a context manager removes it.

    What was not used for longest goes when there are more than `most` bytes.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        _clear_abandoned()
        self._folder = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        self.path = Path(self._folder.name)
        self._most = most
        self._sizes: dict[str, int] = {}
        """Of what is here, least recently used first."""
        self._users: Counter[str] = Counter()
        self._lock = threading.Lock()
        # says to other processes, and to those that clear up /tmp, that somebody uses it
        self._sign = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._sign, fcntl.LOCK_SH)

    def __enter__(self) -> Shelf:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._sign)
        self._folder.cleanup()

    @contextmanager
    def holding(
        self, files: Mapping[str, str], read: Callable[[list[str]], Mapping[str, bytes]]
    ) -> Iterator[list[Mount]]:
        """The mounts of a request's files, which stay as long; `read` gives the contents of SHA-256 names.

        Raises OSError when there is no room for them.
        """
        names = list(dict.fromkeys(files.values()))
        with self._lock:
            self._users.update(names)
        try:
            wanted = self.missing(names)
            for name, content in (read(wanted) if wanted else {}).items():
                self.put(name, content)
            yield self.mounts(files)
        finally:
            with self._lock:
                self._users.subtract(names)
                self._users = +self._users
                for name in names:
                    if name in self._sizes:
                        self._sizes[name] = self._sizes.pop(name)
                self._make_room(self._most)

    def missing(self, names: Iterable[str]) -> list[str]:
        """Which of these SHA-256 are not here yet."""
        return [name for name in dict.fromkeys(names) if not (self.path / name).exists()]

    def put(self, name: str, content: bytes) -> Path:
        """Keep a file; doing it twice at once does no harm. Raises OSError when there is no room."""
        place = self.path / name
        with self._lock:
            if not place.exists():
                try:
                    self._write(place, content)
                except OSError:
                    self._make_room(0)
                    self._write(place, content)
                self._sizes[name] = len(content)
        return place

    def _write(self, place: Path, content: bytes) -> None:
        self.path.mkdir(mode=0o700, exist_ok=True)
        temporary = place.with_suffix(".new")
        try:
            temporary.write_bytes(content)
            temporary.chmod(0o444)
            temporary.replace(place)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _make_room(self, most: int) -> None:
        """Take away what nobody uses now, until there is no more than that."""
        total = sum(self._sizes.values())
        for name in [name for name in self._sizes if not self._users[name]]:
            if total <= most:
                break
            (self.path / name).unlink(missing_ok=True)
            total -= self._sizes.pop(name)

    def mounts(self, files: Mapping[str, str]) -> list[Mount]:
        """Where the files of a request are seen: below `/box`, data also as `/data/x` and `/box/x`.

        The assignment's data win over a submission's file of the same name. All must be here.
        """
        places: dict[str, str] = {}
        for path, name in sorted(files.items(), key=lambda item: not _is_data(item[0])):
            for target in _targets(path):
                places.setdefault(target, name)
        return [Mount(self.path / name, target) for target, name in _without_clashes(places).items()]


def _is_data(path: str) -> bool:
    return path.startswith(f"{DATA}/")


def _targets(path: str) -> list[str]:
    inside = PurePosixPath(path)
    if inside.is_absolute() or ".." in inside.parts or not inside.parts or "\0" in path:
        return []
    if any(len(part.encode()) > LONGEST_NAME for part in inside.parts) or len(path.encode()) > LONGEST_PATH:
        return []  # no file system takes it
    targets = [WORK / inside]
    if _is_data(path):
        rest = inside.relative_to(DATA)
        targets += [PurePosixPath("/", DATA) / rest, WORK / rest]
    return [target.as_posix() for target in targets]


def _without_clashes(places: Mapping[str, str]) -> dict[str, str]:
    """Without files that would have to be folders, too."""
    folders = {parent.as_posix() for target in places for parent in PurePosixPath(target).parents}
    return {target: name for target, name in places.items() if target not in folders}


def _clear_abandoned() -> None:
    """Remove the folders of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            sign = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(sign).st_uid == os.geteuid():
                    fcntl.flock(sign, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(sign)


log = logging.getLogger(__name__)
OWN = "work:"
"""What keys of requests for students' work begin with; the others are the instructor's."""
CLOCK = re.compile(r"\b(?:Sys\.Date|Sys\.time|today|now|utcnow|strftime|time\.time|localtime)\s*\(")
"""Calls that ask for the day or the time, in R and Python."""
LARGEST = 4 << 20
"""Bytes of an execution that is kept; a larger one is run again when it is asked for."""


class InputUnavailable(SandboxUnavailable):
    """The store of large files does not answer, and the work needs one of its files."""


@dataclass(frozen=True)
class Runner:
    """Executions with a cache in SQL. Any number of threads may use it."""

    store: Store
    executor: Executor
    shelf: Shelf
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Contents by SHA-256 that the store does not hold yet: of an assignment that is being imported."""
    today: Callable[[], date] = date.today
    _worked: set[str] = field(default_factory=set)
    """Languages in which something could be run: what keeps them from it now will pass."""
    _under_way: dict[str, threading.Lock] = field(default_factory=dict)
    _users: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, plan: Plan, submission_id: str | None) -> Mapping[str, Execution]:
        """The execution of each request of a plan; without a submission, all of it is the instructor's.

        A server without a sandbox, or without a language, gives executions that were not run. One that had
        them and cannot use them now raises SandboxUnavailable.
        """
        return {
            name: self._execution(request, submission_id if name.startswith(OWN) else None)
            for name, request in plan.requests.items()
        }

    def run_unkept(self, plan: Plan) -> Mapping[str, Execution]:
        """The same for code that is not submitted: what it gives is not kept, nor taken from what is."""
        return {
            name: self._unkept(request) if name.startswith(OWN) else self._execution(request, None)
            for name, request in plan.requests.items()
        }

    def _unkept(self, request: Request) -> Execution:
        return self._not_here(request) or self._run(request)

    def _not_here(self, request: Request) -> Execution | None:
        """An execution that was not run, where this server has nothing to run it in."""
        language = request.work.language
        problem = self.executor.problem(language)
        if problem and language not in self._worked:
            return Execution(end="not run", reason=problem, sandbox=self.executor.backend.name)
        if problem:
            raise SandboxUnavailable(problem)
        self._worked.add(language)
        return None

    def _execution(self, request: Request, submission_id: str | None) -> Execution:
        """From the memory, or by running it; who asks for the same at the same time waits for the first."""
        not_run = self._not_here(request)
        if not_run is not None:
            return not_run
        key = self.key(request)
        with self._alone(key):
            known = self._known(key)
            if known is not None:
                return known
            execution = self._run(request)
            if repeatable(execution):
                self._keep(key, submission_id, execution)
            return execution

    def key(self, request: Request) -> str:
        """SHA-256 over all that decides the outcome: work, tests, files, limits, and what it runs in.

        Code that asks for the day is run anew on another day: the solution's outputs of last week are not
        what a work has to put out today.
        """
        content = request.model_dump(mode="json")
        decides = [content, self.executor.image(request.work.language)]
        if any(CLOCK.search(cell.source) for cell in request.work.cells):
            decides.append(self.today().isoformat())
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def _known(self, key: str) -> Execution | None:
        with self.store.read() as session:
            content = preparing.find_execution(session, key)
        try:
            return None if content is None else Execution.model_validate(content)
        except ValidationError:
            log.warning("a cached execution is from another version; it is run again")
            return None

    def _keep(self, key: str, submission_id: str | None, execution: Execution) -> None:
        content = execution.model_dump_json()
        if len(content) > LARGEST:
            return
        try:
            with self.store.write() as session:
                preparing.store_execution(session, key, submission_id, json.loads(content))
        except IntegrityError:
            log.info("a submission was erased during its run; the execution is not stored")

    def _run(self, request: Request) -> Execution:
        try:
            with self.shelf.holding(request.files, self._contents) as mounts:
                execution = self.executor.run(request, mounts)
        except OSError as error:  # the disk is full, or somebody cleared it up
            raise SandboxUnavailable(f"Files could not be laid out: {error.strerror or error}.") from error
        language, cells = request.work.language, len(request.work.cells)
        log.info("ran %d cells of %s in %.1f s: %s", cells, language, execution.seconds, execution.end)
        return execution

    def _contents(self, names: list[str]) -> Mapping[str, bytes]:
        known = {name: self.files[name] for name in names if name in self.files}
        try:
            with self.store.read() as session:
                return {
                    **blobs.load_blobs(session, [name for name in names if name not in known]),
                    **known,
                }
        except FilesUnavailable as error:
            raise InputUnavailable(error.coded) from error
        except FileDamaged as error:
            raise SandboxUnavailable(error.coded) from error

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
