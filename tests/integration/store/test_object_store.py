"""Large files in an object store: moves, deletions, and a store that misbehaves; on both databases."""

from __future__ import annotations

import hashlib
import io
import random
import ssl
import zipfile
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import obstore
import pytest
from sqlalchemy import delete, event, select, text

from grading.documents import SubmittedFiles, UploadedFile
from grading.domain.errors import FileDamaged, FilesUnavailable
from grading.store import Store, blob_moves, object_store, schema
from grading.store.blobs import load_blob, load_blobs, store_blobs
from grading.store.database import now
from grading.store.object_store import PIECE_BYTES, ObjectStore
from grading.store.privacy import erasure
from grading.store.privacy import export as privacy_export
from grading.store.privacy.deletion import delete_submissions
from grading.store.submissions import intake, pending_uploads
from grading.store.submissions.intake import IncomingSubmission
from grading.store.tables import Blob, Submission, SubmissionFile, UnusedObject, UploadFile
from grading.store.views import csv_export
from tests.support.aging import Fresh
from tests.support.factories import add_assignment, add_student, document, submit
from tests.support.object_stores import LARGE, FaultyS3, faulty_s3, in_memory
from tests.support.redis_servers import certificates
from tests.support.services import SqliteDatabases
from workers.server.file_mover import FileMover

LARGE_TEXT = "# " + "y" * LARGE


@pytest.fixture
def store(fresh_database: Fresh) -> Iterator[Store]:
    with closing(Store(fresh_database(schema.upgrade), objects=in_memory())) as made:
        yield made


def objects_of(store: Store) -> ObjectStore:
    assert store.objects is not None
    return store.objects


def keys_in(objects: ObjectStore) -> set[str]:
    return {one.key for page in objects.pages() for one in page}


def large(store: Store, text: str = LARGE_TEXT, student: str = "s1") -> tuple[str, str]:
    """A submission with a large file: its id and the file's SHA-256."""
    accepted = submit(store, add_assignment(store), student, source_text=text)
    return accepted.submission_id, hashlib.sha256(text.encode()).hexdigest()


def key_of(store: Store, name: str) -> str | None:
    with store.read() as session:
        return session.scalar(select(Blob.object_key).where(Blob.sha256 == name))


def read(store: Store, name: str) -> bytes:
    with store.read() as session:
        return load_blob(session, name)


def unused(store: Store) -> set[str]:
    with store.read() as session:
        return set(session.scalars(select(UnusedObject.key)))


def age(store: Store, by: timedelta) -> None:
    """Let all times of deletions be so much earlier."""
    with store.write() as session:
        for row in session.scalars(select(UnusedObject)):
            row.delete_at -= by


def test_large_files_of_submissions_move_and_come_back(store: Store) -> None:
    objects = objects_of(store)
    _, name = large(store)
    _, small = large(store, "x <- 1", "s2")
    assert blob_moves.move_to_objects(store, objects) == blob_moves.Moved(1, len(LARGE_TEXT))
    assert blob_moves.move_to_objects(store, objects).blobs == 0
    key = key_of(store, name)
    assert key is not None
    assert blob_moves.sha256_of(key) == name
    assert keys_in(objects) == {key}
    assert key_of(store, small) is None
    assert not unused(store)
    with store.read() as session:
        assert session.scalar(select(Blob.data).where(Blob.sha256 == name)) == b""
        assert load_blobs(session, [name, small, "none"]) == {name: LARGE_TEXT.encode(), small: b"x <- 1"}
        places = blob_moves.count_places(session, LARGE)
    assert (places.in_database.blobs, places.in_objects.blobs, places.to_move.blobs) == (1, 1, 0)
    assert blob_moves.verify_objects(store, objects) == (blob_moves.Moved(1, len(LARGE_TEXT)), [], name)
    moved, last = blob_moves.move_to_database(store, objects)
    assert (moved.blobs, last) == (1, name)
    assert blob_moves.move_to_database(store, objects, last) == (blob_moves.Moved(), "")
    assert key_of(store, name) is None
    assert read(store, name) == LARGE_TEXT.encode()
    # for backups from before, the object stays for a week
    assert blob_moves.delete_objects(store, objects) == 0
    assert keys_in(objects) == {key}
    age(store, timedelta(days=7, seconds=1))
    assert blob_moves.delete_objects(store, objects) == 1
    assert not keys_in(objects)


def test_one_sweeper_at_a_time_moves_files(store: Store) -> None:
    _, name = large(store)
    movers = [FileMover(cast(Any, SimpleNamespace(store=store))) for _ in range(2)]
    assert [one.step(objects_of(store)).blobs for one in movers] == [1, 0]
    assert key_of(store, name) is not None
    large(store, LARGE_TEXT + "z", "s2")
    store.clock_offset_s = 5
    assert movers[1].step(objects_of(store)).blobs == 1


def test_what_was_deleted_in_sql_is_deleted_there_and_shared_files_stay(store: Store) -> None:
    objects = objects_of(store)
    first, name = large(store)
    _second, _ = large(store, student="s2")
    blob_moves.move_to_objects(store, objects)
    with store.write() as session:
        delete_submissions(session, [first])
    assert blob_moves.delete_objects(store, objects) == 0
    assert read(store, name) == LARGE_TEXT.encode()
    with store.write() as session:
        known = erasure.find_student(session, "s2")
        erasure.erase_student(session, known, "test")
    assert key_of(store, name) is None
    assert len(keys_in(objects)) == 1
    assert blob_moves.delete_objects(store, objects) == 1
    assert not keys_in(objects)
    assert not unused(store)


def test_the_same_bytes_submitted_again_while_theirs_are_deleted_have_an_object_of_their_own(
    store: Store,
) -> None:
    objects = objects_of(store)
    first, name = large(store)
    blob_moves.move_to_objects(store, objects)
    with store.write() as session:
        delete_submissions(session, [first])
    large(store, student="s2")
    blob_moves.move_to_objects(store, objects)
    assert len(keys_in(objects)) == 2
    assert blob_moves.delete_objects(store, objects) == 1
    assert read(store, name) == LARGE_TEXT.encode()
    assert keys_in(objects) == {key_of(store, name)}


def test_a_deletion_of_an_object_that_is_in_use_is_refused(store: Store) -> None:
    objects = objects_of(store)
    _, name = large(store)
    blob_moves.move_to_objects(store, objects)
    key = key_of(store, name)
    assert key is not None
    with store.write() as session:
        session.add(UnusedObject(key=key, delete_at=now(session)))
    assert blob_moves.delete_objects(store, objects) == 0
    assert keys_in(objects) == {key}


class Broken(Exception):
    """The process ends here."""


@pytest.mark.parametrize("at", ["before the object", "after the object"])
def test_an_interrupted_move_leaves_the_file_and_an_object_that_is_deleted(
    store: Store, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = objects_of(store)
    _, name = large(store)
    put = objects.put

    def breaks(key: str, content: bytes) -> None:
        if at == "after the object":
            put(key, content)
        raise Broken

    monkeypatch.setattr(objects, "put", breaks)
    with pytest.raises(Broken):
        blob_moves.move_to_objects(store, objects)
    assert read(store, name) == LARGE_TEXT.encode()
    assert len(unused(store)) == 1
    assert blob_moves.delete_objects(store, objects) == 0  # somebody may be writing it
    age(store, blob_moves.WRITE_WITHIN)
    assert blob_moves.delete_objects(store, objects) == 1
    assert not keys_in(objects)
    assert not unused(store)


def test_a_move_that_took_too_long_changes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its object may be deleted at any moment."""
    objects = objects_of(store)
    _, name = large(store)
    verify = objects.verify

    def late(key: str, sha256: str, size: int) -> None:
        verify(key, sha256, size)
        age(store, blob_moves.WRITE_WITHIN - blob_moves.MARGIN)

    monkeypatch.setattr(objects, "verify", late)
    assert blob_moves.move_to_objects(store, objects).blobs == 0
    assert key_of(store, name) is None
    assert read(store, name) == LARGE_TEXT.encode()
    assert blob_moves.delete_objects(store, objects) == 1
    assert not keys_in(objects)


def test_a_file_deleted_during_its_move_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = objects_of(store)
    submission, _name = large(store)
    verify = objects.verify

    def erased(key: str, sha256: str, size: int) -> None:
        verify(key, sha256, size)
        with store.write() as session:
            delete_submissions(session, [submission])

    monkeypatch.setattr(objects, "verify", erased)
    assert blob_moves.move_to_objects(store, objects).blobs == 0
    assert blob_moves.delete_objects(store, objects) == 1
    assert not keys_in(objects)


def test_a_file_that_moves_back_while_it_is_read_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = objects_of(store)
    _, name = large(store)
    blob_moves.move_to_objects(store, objects)
    get = objects.get

    def moved_meanwhile(key: str, sha256: str, size: int) -> bytes:
        monkeypatch.setattr(objects, "get", get)
        blob_moves.move_to_database(store, objects)
        blob_moves.delete_objects(store, objects)
        return get(key, sha256, size)

    monkeypatch.setattr(objects, "get", moved_meanwhile)
    assert read(store, name) == LARGE_TEXT.encode()
    assert key_of(store, name) is None


def open_transactions(store: Store) -> int:
    """Transactions of others; on SQLite only whether there is one, which keeps the log of all writes."""
    with store.engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            return int(connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0])
        return connection.scalar(
            text(
                "select count(*) from pg_stat_activity where datname = current_database() "
                "and pid <> pg_backend_pid() and xact_start is not null and backend_type = 'client backend'"
            )
        )


def test_no_transaction_is_open_while_an_object_or_a_recipient_is_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = objects_of(store)
    submission, name = large(store)
    blob_moves.move_to_objects(store, objects)
    get, found = objects.get, []

    def slow(key: str, sha256: str, size: int) -> bytes:
        with store.write() as session:  # others submit
            session.add(UnusedObject(key=f"others-{len(found)}", delete_at=now(session)))
        found.append(open_transactions(store))
        return get(key, sha256, size)

    monkeypatch.setattr(objects, "get", slow)
    assert read(store, name) == LARGE_TEXT.encode()
    with store.read() as session:
        student = erasure.find_student(session, "s1")
        assignment = session.get_one(Submission, submission).assignment_id
    to = io.BytesIO()
    assert privacy_export.write_export(store, student, to, "test")["submission_files"] == 1
    with zipfile.ZipFile(to) as archive:
        assert [one.file_size for one in archive.infolist()].count(len(LARGE_TEXT)) == 1
    for _, content in csv_export.export_files(store, assignment):
        found.append(open_transactions(store))
        assert content
    assert len(found) >= 3 + 2
    assert set(found) == {0}


@pytest.mark.parametrize("at", ["after its first file", "while its first file is fetched"])
def test_an_export_leaves_out_files_of_a_submission_that_is_deleted_meanwhile(
    store: Store, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, assignment = objects_of(store), add_assignment(store)
    texts = {"a.R": LARGE_TEXT, "b.R": "x <- 2"}
    files = tuple(UploadedFile(path, content.encode()) for path, content in texts.items())
    content = SubmittedFiles(files, tuple(document(one, path) for path, one in texts.items()), ())
    incoming = IncomingSubmission(assignment, add_student(store), "form", content)
    with store.write() as session:
        submission = intake.accept_submission(session, incoming).submission_id
    submit(store, assignment, "s2")
    blob_moves.move_to_objects(store, objects)
    get = objects.get

    def erase() -> None:
        with store.write() as session:
            delete_submissions(session, [submission])
        assert blob_moves.delete_objects(store, objects) == 1

    def erased(key: str, sha256: str, size: int) -> bytes:
        erase()
        return get(key, sha256, size)

    if at == "while its first file is fetched":
        monkeypatch.setattr(objects, "get", erased)
    found = []
    for path, _ in csv_export.export_files(store, assignment):
        found.append(path.rpartition("/")[2])
        if path.endswith("a.R"):
            erase()
    assert found == ["README.txt", *(["a.R"] if at == "after its first file" else []), "work.R"]


def test_an_upload_is_submitted_without_reading_its_files(store: Store) -> None:
    """Its bytes are in the object store already when another student submitted the same."""
    assignment_id = add_assignment(store)
    large(store)
    blob_moves.move_to_objects(store, objects_of(store))
    student = add_student(store, "s2")
    content = SubmittedFiles((UploadedFile("work.R", LARGE_TEXT.encode()),), (document(LARGE_TEXT),), ())
    with store.write() as session:
        assignment = session.get_one(pending_uploads.tables.Assignment, assignment_id)
        found = pending_uploads.read_upload(session, assignment, content)
        upload = pending_uploads.save_upload(session, assignment_id, student, content, found, "")
    store.objects = None
    with store.write() as session:
        waiting, rest = pending_uploads.claim_upload(session, upload, student, "s2")
        incoming = IncomingSubmission(assignment_id, student, "form", rest, stored=waiting.files)
        accepted = intake.accept_submission(session, incoming)
        pending_uploads.mark_submitted(session, [upload])
    with store.read() as session:
        submission = session.get_one(pending_uploads.tables.Submission, accepted.submission_id)
        assert submission.fingerprint == waiting.fingerprint
        files = select(SubmissionFile.path, SubmissionFile.sha256, SubmissionFile.size)
        row = session.execute(files.where(SubmissionFile.submission_id == submission.id)).one()
    assert tuple(row) == ("work.R", hashlib.sha256(LARGE_TEXT.encode()).hexdigest(), len(LARGE_TEXT))


def test_uploads_and_material_stay_in_the_database(store: Store) -> None:
    _submission, name = large(store)
    with store.write() as session:
        store_blobs(session, [b"material" * LARGE])
        student = add_student
        assert student
        row = pending_uploads.Upload(
            assignment_id=1,
            user_id=1,
            documents=[],
            notes=[],
            reading={},
            fingerprint="",
            created_at=now(session),
        )
        session.add(row)
        session.flush()
        session.add(UploadFile(upload_id=row.id, path="work.R", sha256=name, size=1))
    with store.read() as session:
        assert blob_moves.list_movable(session, LARGE) == []
    with store.write() as session:
        session.execute(delete(UploadFile))
    with store.read() as session:
        assert blob_moves.list_movable(session, LARGE) == [name]
        assert blob_moves.list_movable(session, 2 * LARGE) == []


def test_objects_that_the_database_does_not_know_are_found(store: Store) -> None:
    objects = objects_of(store)
    _, _name = large(store)
    blob_moves.move_to_objects(store, objects)
    strange = blob_moves.new_key("a" * 64)
    objects.put(strange, b"of a submission after the backup")
    assert [one for page in blob_moves.unknown_objects(store, objects) for one in page] == []
    store.clock_offset_s = 90_000  # a day later
    found = [one.key for page in blob_moves.unknown_objects(store, objects) for one in page]
    assert found == [strange]


def test_the_index_finds_what_is_to_be_moved(sqlite_databases: SqliteDatabases) -> None:
    plans: list[str] = []

    def explain(connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        driver = connection.connection.driver_connection
        plans.extend(row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))

    with closing(Store(sqlite_databases.fresh(schema.upgrade))) as store, store.read() as session:
        session.connection()
        event.listen(store.engine, "before_cursor_execute", explain)
        blob_moves.list_movable(session, LARGE)
    assert any("blobs_to_move" in plan for plan in plans)


# --- a server that misbehaves ---------------------------------------------------------------------------

BYTES = random.Random(1).randbytes(100_000)
NAME = hashlib.sha256(BYTES).hexdigest()
KEY = "aa/key"


@pytest.fixture
def server() -> Iterator[FaultyS3]:
    with faulty_s3() as made:
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("REQUEST_S", 0.3), ("RETRY_FOR_S", 0.3), ("RETRIES", 1), ("TURN_S", 0.05)):
        monkeypatch.setattr(object_store, name, value)


def test_an_object_is_written_in_the_bucket_below_the_prefix_and_read_in_pieces(server: FaultyS3) -> None:
    objects = server.open(prefix="of/ours")
    content = BYTES * (PIECE_BYTES // len(BYTES) + 1)
    server.objects[f"/school/of/ours/{KEY}"] = content
    assert objects.get(KEY, hashlib.sha256(content).hexdigest(), len(content)) == content
    assert len([one for one in server.requests if one.startswith("GET")]) == 2
    objects.put("bb/other", BYTES)
    assert server.objects["/school/of/ours/bb/other"] == BYTES
    objects.delete(["bb/other", "bb/never"])
    assert "/school/of/ours/bb/other" not in server.objects


@pytest.mark.parametrize("fault", ["403", "500", "503", "NoSuchBucket", "silent", "truncated"])
def test_a_store_that_fails_is_away_and_is_left_alone_for_a_while(server: FaultyS3, fault: str) -> None:
    objects = server.open()
    objects.put(KEY, BYTES)
    server.fault = fault
    with pytest.raises(FilesUnavailable):
        objects.get(KEY, NAME, len(BYTES))
    asked = len(server.requests)
    server.fault = ""
    with pytest.raises(FilesUnavailable):
        objects.get(KEY, NAME, len(BYTES))
    assert len(server.requests) == asked
    objects.clock = lambda: float("inf")
    assert objects.get(KEY, NAME, len(BYTES)) == BYTES


def test_a_certificate_of_the_school_is_trusted_where_it_is_named(tmp_path: Path) -> None:
    made = certificates(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    with faulty_s3(context) as server:
        with pytest.raises(FilesUnavailable):
            server.open().put(KEY, BYTES)
        assert not server.objects
        objects = server.open(ca_file=str(made.ca))
        objects.put(KEY, BYTES)
        assert objects.get(KEY, NAME, len(BYTES)) == BYTES


@pytest.mark.parametrize("fault", ["wrong", "gone", "shorter"])
def test_a_wrong_object_is_an_error(server: FaultyS3, fault: str) -> None:
    objects = server.open()
    objects.put(KEY, BYTES)
    if fault == "wrong":
        server.fault = fault
    place = f"/school/grader/{KEY}"
    if fault == "gone":
        del server.objects[place]
    if fault == "shorter":
        server.objects[place] = BYTES[:-1]
    with pytest.raises(FileDamaged):
        objects.get(KEY, NAME, len(BYTES))


def test_those_who_wait_for_a_slow_store_leave_threads_to_others(server: FaultyS3) -> None:
    objects = server.open()
    taken = [objects._turns.acquire(blocking=False) for _ in range(object_store.AT_ONCE)]
    assert all(taken)
    with pytest.raises(FilesUnavailable):
        objects.get(KEY, NAME, len(BYTES))
    assert not server.requests


@pytest.mark.parametrize("fault", ["403", "truncated", "wrong", "500"])
def test_nothing_is_lost_whatever_the_store_does_during_a_move(
    server: FaultyS3, store: Store, fault: str
) -> None:
    objects = server.open(larger_than_kb=64)
    objects.larger_than = LARGE
    _, name = large(store)
    server.fault = fault
    with pytest.raises((FilesUnavailable, FileDamaged)):
        blob_moves.move_to_objects(store, objects)
    assert key_of(store, name) is None
    assert read(store, name) == LARGE_TEXT.encode()
    server.fault, objects.clock = "", lambda: float("inf")
    assert blob_moves.move_to_objects(store, objects).blobs == 1
    store.objects = objects
    assert read(store, name) == LARGE_TEXT.encode()


def test_a_changed_object_is_never_shown(store: Store) -> None:
    objects = objects_of(store)
    _, name = large(store)
    blob_moves.move_to_objects(store, objects)
    key = key_of(store, name)
    assert key is not None
    obstore.put(objects.connect(), key, b"z" * len(LARGE_TEXT))
    with pytest.raises(FileDamaged):
        read(store, name)
    assert blob_moves.verify_objects(store, objects)[1] == [name]
    assert blob_moves.move_to_database(store, objects)[0].blobs == 0
    assert key_of(store, name) == key


def test_without_a_store_in_the_configuration_its_files_are_away(store: Store) -> None:
    _, name = large(store)
    blob_moves.move_to_objects(store, objects_of(store))
    store.objects = None
    with pytest.raises(FilesUnavailable):
        read(store, name)
