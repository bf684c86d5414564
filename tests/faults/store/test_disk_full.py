"""A full disk: 507 with a sentence for every way in, nothing half stored, and all is well when there is room.

SQLite's own limit of pages gives the very error of a full disk, a limit on file sizes nearly that of a full
folder for temporary files; both work everywhere. The soak fills a real file system under a real web app.
"""

from __future__ import annotations

import base64
import gc
import io
import os
import random
import resource
import shutil
import sqlite3
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import event, func, select, text
from werkzeug.test import TestResponse

from cli.dev.embedded_redis import free_port
from grading.store import tables
from grading.store.learning_platforms import all_tables
from tests.integration.integrations.test_webhooks import message, signed
from tests.integration.webapp import School, form_token
from tests.support.system import ASSIGNMENT, furnish, site, until

Way = Callable[[School], TestResponse]


def content(size: int = 250_000) -> bytes:
    """A script, another one each time, that does not compress: it takes room wherever it is kept."""
    return b"# " + base64.encodebytes(random.randbytes(size * 3 // 4)).replace(b"\n", b"\n# ")


def by_form(school: School) -> TestResponse:
    client = school.client("anna")
    page = f"/assignments/{school.assignment}/submit"
    fields = {"csrf_token": form_token(client), "files": (io.BytesIO(content()), "work.py")}
    return client.post(page, data=fields)


def by_api(school: School) -> TestResponse:
    fields = {"assignment": "ba/hw1", "student": "anna", "files": (io.BytesIO(content()), "work.py")}
    return school.client().post("/api/v1/submissions", data=fields, headers=school.api_token)  # type: ignore[attr-defined]


def by_webhook(school: School) -> TestResponse:
    files = [{"name": "work.py", "content_base64": base64.b64encode(content()).decode()}]
    body = message(files=files)
    return school.client().post("/webhooks/lms/canvas", data=body, headers=signed(body))


def class_zip(school: School) -> TestResponse:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("anna_work.py", content())
        archive.writestr("ben_work.py", content(200_000))
    client = school.client("teacher")
    fields = {"csrf_token": form_token(client), "zip": (io.BytesIO(packed.getvalue()), "class.zip")}
    return client.post(f"/assignments/{school.assignment}/class", data=fields)


def class_confirmed(school: School) -> TestResponse:
    client = school.client("teacher")
    users = school.users
    fields = {"csrf_token": form_token(client), "student-0": users["anna"], "student-1": users["ben"]}
    return client.post(school.preview, data=fields)  # type: ignore[attr-defined]


WAYS: dict[str, tuple[Way, int]] = {
    "form": (by_form, 303),
    "api": (by_api, 202),
    "webhook": (by_webhook, 200),
    "class zip": (class_zip, 303),
    "class confirmed": (class_confirmed, 303),
}
FULL_ON_POSTGRESQL = """
create function no_room() returns trigger language plpgsql as $$
begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$
"""


@pytest.fixture
def school(database_url: str) -> Iterator[School]:
    made = School(database_url)
    made.api_token = made.token("anna")  # type: ignore[attr-defined]
    made.preview = class_zip(made).headers["Location"]  # type: ignore[attr-defined]
    yield made
    made.close()


@contextmanager
def full_disk(school: School) -> Iterator[None]:
    """The last thing each way writes finds no room."""
    engine = school.store.engine
    if engine.dialect.name == "sqlite":

        def no_more_pages(connection: Any, _: Any) -> None:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages + 20}")

        engine.dispose()
        event.listen(engine, "connect", no_more_pages)
        yield
        event.remove(engine, "connect", no_more_pages)
        engine.dispose()
        return
    last = ("outbox", "class_uploads")
    with engine.begin() as connection:
        connection.execute(text(FULL_ON_POSTGRESQL))
        for table in last:
            rule = f"create trigger full_{table} before insert on {table} execute function no_room()"
            connection.execute(text(rule))
    yield
    with engine.begin() as connection:
        connection.execute(text("drop function no_room() cascade"))


def rows(school: School) -> dict[str, int]:
    """Rows of all tables but that of sessions: some ways begin with signing in."""
    with school.store.read() as session:
        return {
            name: session.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in all_tables().tables.items()
            if name != tables.OpenSession.__tablename__
        }


def test_every_way_in_says_that_the_disk_is_full_and_stores_nothing(school: School) -> None:
    before = rows(school)
    with full_disk(school):
        for name, (way, _) in WAYS.items():
            assert_full(way(school), name)
            assert rows(school) == before, name
    assert school.dispatch.announced == []
    for name, (way, accepted) in WAYS.items():
        assert way(school).status_code == accepted, name
    assert len(school.dispatch.announced) == 5


def assert_full(answer: TestResponse, name: str) -> None:
    said = answer.get_data(as_text=True)
    assert answer.status_code == 507, f"{name}: {said}"
    if answer.mimetype == "application/problem+json":
        assert answer.get_json()["code"] == "disk_full", name
    assert "disk is full, so nothing was stored" in said.replace("&#39;", "'"), name
    assert "Traceback" not in said


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("way", "first"), [("api", False), ("class zip", False), ("form", True)])
def test_an_upload_that_cannot_be_kept_while_it_arrives(
    tmp_path: Path, way: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    school = School(tmp_path, max_upload_mb=8)
    school.api_token = school.token("anna")  # type: ignore[attr-defined]
    # the first upload of a process also looks for a folder that takes temporary files
    big = content(1_200_000)
    monkeypatch.setattr(f"{__name__}.content", lambda _=0: big)
    before = rows(school)
    answer_request = school.app.wsgi_app

    def without_room(environ: Any, start: Any) -> Any:
        # only here: the test's client keeps large bodies in temporary files, too
        if first:
            monkeypatch.setattr(tempfile, "tempdir", None)
        with no_file_beyond(0 if first else 300_000):
            return answer_request(environ, start)

    monkeypatch.setattr(school.app, "wsgi_app", without_room)
    with warnings.catch_warnings():
        # a form whose parsing failed leaves the file it was writing to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        answer = WAYS[way][0](school)
        assert_full(answer, way)
        del answer  # it holds the client's own temporary file
        gc.collect()
    assert rows(school) == before
    school.close()


# --- a real file system ---------------------------------------------------------------------------

ONE_MACHINE = """
[server]
uploads_per_minute = 100000
api_per_minute = 10000000

[[machines]]
name = "m"
[machines.stages]
analysis = { engine = "instant", model = "m" }
feedback = { engine = "instant", model = "m" }
"""
ROOM = 3 << 20
"""Bytes of the disk beside the empty database."""
SMALL_DISK = 'mount -t tmpfs -o size="$BYTES" none "$0" && cp "$0.db" "$0/grader.db" && exec "$@"'


@pytest.mark.soak
@pytest.mark.parametrize("size", [3_000, 40_000, 250_000])
def test_a_web_app_on_a_disk_with_room_for_3_mb(tmp_path: Path, redis_url: str, size: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    port, empty = free_port(), tmp_path / "disk.db"
    with site(tmp_path, ONE_MACHINE, f"sqlite:///{empty}", redis_url) as made:
        token = furnish(made.store, "").token
        made.store.close()
        own_root = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        made.parts.start(
            "web", "web", "--port", str(port), "--var", str(disk),
            prefix=[*own_root, "sh", "-c", SMALL_DISK, str(disk)],
            environ={
                "GRADER_DATABASE_URL": f"sqlite:///{disk / 'grader.db'}",
                "TMPDIR": str(disk),
                "BYTES": str(empty.stat().st_size + ROOM),
            },
        )  # fmt: skip
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{url}/healthz"), 20, "the web app answers")
        found, accepted = [], []
        for number in range(400):
            body = content(size)
            answer = requests.post(
                f"{url}/api/v1/submissions",
                headers={"Authorization": f"Bearer {token}"},
                data={"assignment": ASSIGNMENT, "student": f"s-{number}"},
                files={"files": ("work.R", body)},
                timeout=30,
            )
            found.append(answer.status_code)
            if answer.status_code == 202:
                accepted.append(answer.json()["id"])
            elif len(found) - len(accepted) > 20:
                break
        print(f"{size} bytes each: {len(accepted)} accepted, then {set(found[len(accepted) :])}")
        assert set(found) <= {202, 507}
        assert 202 in found
        assert 507 in found
        # copied: SQLite would look for the path itself, outside
        inside = Path(f"/proc/{made.parts.running['web'].pid}/root{disk}")
        for name in ("grader.db", "grader.db-wal"):
            shutil.copyfile(inside / name, tmp_path / name)
        assert stored(tmp_path / "grader.db") == set(accepted)


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=1).ok
    except requests.ConnectionError:
        return False


def stored(path: Path) -> set[str]:
    """The submissions of a database, each whole."""
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        whole = """
            select s.id from submissions s join rounds r on r.submission_id = s.id and r.current
            join outbox o on o.key = r.id
            join outbox e on e.key = 'received:' || s.id join submission_files f on f.submission_id = s.id
            join blobs b on b.sha256 = f.sha256
            where (select count(*) from round_stages t where t.round_id = r.id) = 2
        """
        found = [row[0] for row in connection.execute(whole)]
        rows = {"submissions": 1, "rounds": 1, "outbox": 2, "submission_files": 1, "blobs": 1}
        for table, each in rows.items():
            counted = connection.execute(f"select count(*) from {table}").fetchone()
            assert counted == (each * len(found),), table
    return set(found)
