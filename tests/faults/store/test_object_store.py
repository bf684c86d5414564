"""A server that speaks S3, with all that writes, moves, reads and deletes at once; the commands on files."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import requests
from sqlalchemy import select

from grading.config.settings import load
from grading.documents import SubmittedFiles, UploadedFile
from grading.domain.errors import FilesUnavailable
from grading.store import Store, blob_moves, open_store, schema
from grading.store.blobs import load_blob
from grading.store.object_store import PIECE_BYTES, ObjectStore
from grading.store.privacy.deletion import delete_submissions
from grading.store.submissions.intake import IncomingSubmission, accept_submission
from grading.store.tables import Blob, UnusedObject
from tests.support import ports
from tests.support.aging import Fresh
from tests.support.commands import Grader, in_process
from tests.support.factories import add_assignment, add_student
from tests.support.object_stores import KEYS
from tests.support.system import until

pytestmark = pytest.mark.soak
ROOT = Path(__file__).parents[3]
SIZE = 70_000
TOML = """
[files]
bucket = "school"
endpoint = "{endpoint}"
larger_than_kb = {size}
[[machines]]
name = "m"
role = "primary"
[machines.stages]
analysis = {{ engine = "instant", model = "m" }}
feedback = {{ engine = "instant", model = "m" }}
"""


class Moto:
    """moto's server with a bucket, in memory."""

    def __init__(self, folder: Path) -> None:
        port = ports.own(ports.number_of_this_process())()
        self.url = f"http://127.0.0.1:{port}"
        program = [str(ROOT / ".venv-soak/bin/moto_server"), "-H", "127.0.0.1", "-p", str(port)]
        with (folder / "moto.log").open("wb") as log:
            self.process = subprocess.Popen(program, stdout=log, stderr=log)
        until(self._made, 60, "moto's server")

    def _made(self) -> bool:
        try:
            return requests.put(f"{self.url}/school", timeout=10).status_code == 200
        except requests.ConnectionError:
            assert self.process.poll() is None
            return False

    def stand_still(self, still: bool) -> None:
        """It answers nobody, or does again."""
        self.process.send_signal(signal.SIGSTOP if still else signal.SIGCONT)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def moto(tmp_path: Path) -> Iterator[Moto]:
    made = Moto(tmp_path)
    yield made
    made.end()


@pytest.fixture
def url(fresh_database: Fresh, monkeypatch: pytest.MonkeyPatch) -> str:
    made = fresh_database(schema.upgrade)
    for name, value in {**KEYS, "GRADER_DATABASE_URL": made}.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def grader(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Grader:
    return in_process(monkeypatch, capsys)


def configured(folder: Path, moto: Moto, size: int = 64) -> Path:
    path = folder / "config.toml"
    path.write_text(TOML.format(endpoint=moto.url, size=size))
    return path


def send(store: Store, assignment: int, student: int, content: bytes) -> str:
    """A submission of one file; its id."""
    files = SubmittedFiles((UploadedFile("data.csv", content),), (), ())
    with store.write() as session:
        incoming = IncomingSubmission(assignment, student, "api", files, trusted=True)
        return accept_submission(session, incoming).submission_id


def keys_in(objects: ObjectStore) -> set[str]:
    return {one.key for page in objects.pages() for one in page}


def due(store: Store) -> None:
    """All that may be deleted one day is due."""
    with store.write() as session:
        for row in session.scalars(select(UnusedObject)):
            row.delete_at -= timedelta(days=30)


def test_the_commands(tmp_path: Path, moto: Moto, url: str, grader: Grader) -> None:
    config = ("--config", str(configured(tmp_path, moto)))
    with closing(open_store(load(tmp_path / "config.toml", os.environ))) as store:
        assignment, student = add_assignment(store), add_student(store)
        contents = [random.Random(number).randbytes(SIZE) for number in range(100)]
        for content in contents:
            send(store, assignment, student, content)
        send(store, assignment, student, b"small")
        assert "to move there: 100 files" in grader(*config, "files", "status").out
        assert "100 files, 6.7 MiB." in grader(*config, "files", "to-store").out
        assert "in the object store: 100 files" in grader(*config, "files", "status").out
        assert grader(*config, "files", "verify").out == "Unchanged: 100 files, 6.7 MiB.\n"
        objects = store.objects
        assert objects is not None
        one, *_ = sorted(keys_in(objects))
        objects.delete([one])
        said = grader(*config, "files", "verify")
        assert (said.status, said.out.split()[0]) == (1, blob_moves.sha256_of(one))
        assert "set it to 0" in grader(*config, "files", "to-database").error
        configured(tmp_path, moto, 0)
        said = grader(*config, "files", "to-database")
        assert "99 files, 6.6 MiB." in said.out
        assert "1 file could not be read" in said.error
        with store.read() as session:
            names = [hashlib.sha256(content).hexdigest() for content in contents]
            back = [load_blob(session, name) == content for name, content in zip(names, contents, strict=True)
                    if name != blob_moves.sha256_of(one)]  # fmt: skip
        assert back == [True] * 99
        assert grader(*config, "files", "unknown").out == "Unknown: 0 objects.\n"
        # one that is written and read in pieces, and erased at once
        configured(tmp_path, moto)
        send(store, assignment, student, random.Random(100).randbytes(3 * PIECE_BYTES + 1))
        assert "100 files, 30.6 MiB" in grader(*config, "files", "to-store").out
        erased = grader(*config, "erase", "s1", "--yes", "--without-redis").out
        assert "Deleted from the object store: 101 objects." in erased
        due(store)
        while blob_moves.delete_objects(store, objects):
            pass
        assert not keys_in(objects)
        said = grader(*config, "backup", str(tmp_path / "backup.zip"))
        assert "Back up the bucket after the database." in said.out


class Traffic:
    """People who submit the same few files again and again, and whose submissions are deleted."""

    def __init__(self, store: Store) -> None:
        self.store, self.assignment = store, add_assignment(store)
        self.contents = [random.Random(number).randbytes(SIZE) for number in range(12)]
        self.names = [hashlib.sha256(content).hexdigest() for content in self.contents]
        self.live: dict[str, int] = {}
        self.lock = threading.Lock()
        self.unread = 0

    def person(self, number: int) -> None:
        chance, student = random.Random(number), add_student(self.store, f"s{number}")
        for _ in range(60):
            which = chance.randrange(len(self.contents))
            submission = send(self.store, self.assignment, student, self.contents[which])
            self.read(which)
            if chance.random() < 0.8:
                with self.store.write() as session:
                    delete_submissions(session, [submission])
            else:
                with self.lock:
                    self.live[submission] = which

    def read(self, which: int) -> None:
        """What is in a submission is there, or the store is away."""
        try:
            with self.store.read() as session:
                assert load_blob(session, self.names[which]) == self.contents[which]
        except FilesUnavailable:
            self.unread += 1


def keep_moving(store: Store, objects: ObjectStore, stop: threading.Event, failed: list[int]) -> None:
    while not stop.is_set():
        try:
            moved = blob_moves.move_to_objects(store, objects)
            deleted = blob_moves.delete_objects(store, objects)
            if not moved.blobs and not deleted:
                stop.wait(0.05)
        except FilesUnavailable:
            failed.append(1)
            stop.wait(0.2)


def test_nothing_is_lost_while_all_write_move_read_and_delete(tmp_path: Path, moto: Moto, url: str) -> None:
    config = load(configured(tmp_path, moto), os.environ)
    stop, failed = threading.Event(), []
    with closing(open_store(config)) as store, ThreadPoolExecutor(8) as threads:
        objects = store.objects
        assert objects is not None
        traffic = Traffic(store)
        movers = [threads.submit(keep_moving, store, objects, stop, failed) for _ in range(2)]
        people = [threads.submit(traffic.person, number) for number in range(4)]
        try:
            until(lambda: len(traffic.live) > 5, 60, "submissions")
            moto.stand_still(True)
            until(lambda: failed, 60, "the store is away")
            moto.stand_still(False)
            for person in people:
                person.result(300)
        finally:
            moto.stand_still(False)
            stop.set()
        for mover in movers:
            mover.result(60)
        objects.clock = lambda: float("inf")
        while blob_moves.move_to_objects(store, objects).blobs:
            pass
        due(store)
        while blob_moves.delete_objects(store, objects):
            pass
        with store.read() as session:
            referred = set(session.scalars(select(Blob.object_key)))
        before, wanted = traffic.unread, set(traffic.live.values())
        for which in wanted:
            traffic.read(which)
    assert traffic.unread == before
    assert keys_in(objects) == referred
    assert {blob_moves.sha256_of(key) for key in referred} == {traffic.names[which] for which in wanted}
    print(json.dumps({"live": len(traffic.live), "files": len(wanted), "away": traffic.unread}))
