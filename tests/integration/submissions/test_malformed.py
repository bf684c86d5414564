"""Malformed uploads by every way in: a 4xx with a sentence that says what to do, and nothing is stored."""

from __future__ import annotations

import base64
import io
import json
import random
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.datastructures import FileStorage
from werkzeug.test import TestResponse, encode_multipart

from grading.store import tables
from tests.integration.integrations.test_webhooks import URL as HOOK
from tests.integration.integrations.test_webhooks import message, signed
from tests.integration.webapp import CODE, School, form_token
from tests.unit.documents.test_zip import full_overlap, quoted_overlap

Files = list[tuple[str, bytes]]
API = "/api/v1/submissions"
STORED = (
    tables.User,
    tables.Submission,
    tables.Blob,
    tables.Round,
    tables.Outbox,
    tables.ClassUpload,
    tables.InboundWebhook,
    tables.IdempotencyKey,
)


def zipped(*members: tuple[str, bytes], mode: int = 0) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, mode << 16
            archive.writestr(info, data)
    return packed.getvalue()


def notebook(**changes: Any) -> bytes:
    cell = {"cell_type": "code", "metadata": {}, "source": "x = 1\n", "outputs": [], "execution_count": 1}
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell], **changes}
    return json.dumps(book).encode()


ZIPS: dict[str, tuple[Callable[[], bytes], str]] = {
    "bomb": (lambda: zipped(("1_a.py", b" " * 60_000_000)), "expands to far more"),
    "parent": (lambda: zipped(("../1_a.py", CODE)), "points outside"),
    "backslashes": (lambda: zipped(("..\\..\\1_a.py", CODE)), "points outside"),
    "absolute": (lambda: zipped(("/etc/1_a.py", CODE)), "points outside"),
    "link": (lambda: zipped(("1_a.py", b"/etc/passwd"), mode=stat.S_IFLNK | 0o777), "contains a link"),
    "full overlap": (full_overlap, "overlap"),
    "quoted overlap": (quoted_overlap, "overlap"),
    "no zip": (lambda: b"PK\x03\x04 no zip", "not a ZIP file"),
    "nothing to grade": (lambda: zipped(("a.exe", b"MZ")), "contains no file that can be graded"),
}
CASES: dict[str, tuple[Files, int, str]] = {
    "empty": ([("a.py", b"")], 422, "is empty; save your work"),
    "blank": ([("a.py", b" \n\t")], 422, "is empty; save your work"),
    "program": ([("a.exe", b"MZ\x90\0")], 415, "cannot be graded; submit"),
    "binary": ([("a.py", bytes(range(256)) * 8)], 422, "is not text; save it"),
    "not JSON": ([("a.ipynb", b"{no")], 422, "open it in Jupyter"),
    "deep JSON": ([("a.ipynb", b"[" * 100_000)], 422, "open it in Jupyter"),
    "JSON, no notebook": ([("a.ipynb", b"[1]")], 422, "is not a Jupyter notebook; open your work"),
    "old notebook": ([("a.ipynb", notebook(nbformat=3))], 422, "old notebook format 3; open it"),
    "new notebook": ([("a.ipynb", notebook(nbformat=5))], 422, "save it in format 4"),
    "odd notebook": ([("a.ipynb", notebook(nbformat=True))], 422, "is not a Jupyter notebook"),
    "60 files": ([(f"{n}.py", CODE) for n in range(60)], 413, "at most 50 are allowed"),
    "same name": ([("a.py", CODE), ("A.py", CODE)], 422, "rename one of them"),
}
NAMES = [*CASES, *(f"zip: {name}" for name in ZIPS)]


@cache
def packed(name: str) -> bytes:
    """That of ZIPS, made only where it is sent: some take long."""
    return ZIPS[name][0]()


def case_of(name: str) -> tuple[Files, int, str]:
    """What is sent, and how it is refused."""
    if name in CASES:
        return CASES[name]
    one = name.removeprefix("zip: ")
    return [("w.zip", packed(one))], 422, ZIPS[one][1]


@pytest.fixture(scope="module")
def school() -> Iterator[School]:
    with tempfile.TemporaryDirectory() as place:
        made = School(Path(place), uploads_per_minute=10_000, api_per_minute=100_000)
        yield made
        made.close()


@pytest.fixture(scope="module")
def tokens(school: School) -> dict[str, dict[str, str]]:
    return {name: school.token(name) for name in ("anna", "teacher")}


@pytest.fixture(scope="module")
def anna(school: School) -> FlaskClient:
    return school.client("anna")


@pytest.fixture(scope="module")
def teacher(school: School) -> FlaskClient:
    return school.client("teacher")


@pytest.fixture
def unchanged(school: School) -> Iterator[None]:
    before = [school.count(table) for table in STORED]
    announced = len(school.dispatch.announced)
    yield
    assert [school.count(table) for table in STORED] == before
    assert len(school.dispatch.announced) == announced


def sent(files: Files, **fields: str) -> dict[str, Any]:
    return {"files": [(io.BytesIO(data), name) for name, data in files], **fields}


def large(data: dict[str, Any]) -> dict[str, Any]:
    """The same as bytes; the test client would leave a temporary file open."""
    files = [FileStorage(stream, name) for stream, name in data.pop("files")]
    boundary, body = encode_multipart({**data, "files": files})
    return {"data": body, "content_type": f"multipart/form-data; boundary={boundary}"}


def refused(answer: TestResponse, status: int, words: str) -> None:
    """One plain sentence, as problem details or on a page that is no dead end."""
    assert answer.status_code == status
    if answer.mimetype == "application/problem+json":
        detail = answer.get_json()["detail"]
        assert words in detail
        assert detail.endswith(".")
        assert len(detail) < 300
    else:
        assert words in answer.get_data(as_text=True)


@pytest.mark.parametrize("case", NAMES)
@pytest.mark.usefixtures("unchanged")
def test_by_api(school: School, tokens: dict[str, dict[str, str]], case: str) -> None:
    files, status, words = case_of(case)
    data = sent(files, assignment="ba/hw1", student="anna")
    refused(school.client().post(API, data=data, headers=tokens["anna"]), status, words)


@pytest.mark.parametrize("case", NAMES)
@pytest.mark.usefixtures("unchanged")
def test_by_form(school: School, anna: FlaskClient, case: str) -> None:
    files, status, words = case_of(case)
    page = f"/assignments/{school.assignment}/submit"
    answer = anna.post(page, data=sent(files, csrf_token=form_token(anna, page)))
    refused(answer, status, words)
    assert 'role="alert"' in answer.get_data(as_text=True)


@pytest.mark.parametrize("case", NAMES)
@pytest.mark.usefixtures("unchanged")
def test_by_webhook(school: School, case: str) -> None:
    files, status, words = case_of(case)
    listed = [{"name": name, "content_base64": base64.b64encode(data).decode()} for name, data in files]
    body = message(files=listed)
    refused(school.client().post(HOOK, data=body, headers=signed(body, case)), status, words)


@pytest.mark.parametrize("case", ZIPS)
@pytest.mark.usefixtures("unchanged")
def test_by_class_zip(school: School, teacher: FlaskClient, case: str) -> None:
    refused(class_upload(school, teacher, packed(case)), 422, ZIPS[case][1])


def class_upload(school: School, teacher: FlaskClient, data: bytes) -> TestResponse:
    page = f"/assignments/{school.assignment}/class"
    fields = {"csrf_token": form_token(teacher, page), "zip": (io.BytesIO(data), "class.zip")}
    return teacher.post(page, data=fields)


def test_a_class_zip_with_nothing_readable_can_be_tried_again(school: School, teacher: FlaskClient) -> None:
    answer = class_upload(school, teacher, zipped(("77_a.ipynb", b"{no"), ("78_b.py", bytes(range(256)))))
    preview = answer.headers["Location"]
    before = school.count(tables.Submission)
    fields = {"csrf_token": form_token(teacher, preview), "student-0": "create", "student-1": "create"}
    page = teacher.post(preview, data=fields, follow_redirects=True).get_data(as_text=True)
    assert "Nothing was submitted" in page
    assert "77 was skipped: a.ipynb is damaged" in page
    assert "Submit for these students" in page
    assert school.count(tables.Submission) == before


TOO_LARGE = random.Random(1).randbytes(3 * 1024 * 1024)


@pytest.mark.usefixtures("unchanged")
def test_larger_than_the_server_accepts(
    school: School, tokens: dict[str, dict[str, str]], anna: FlaskClient, teacher: FlaskClient
) -> None:
    words = "larger than the 2 MB"
    data = large(sent([("a.py", TOO_LARGE)], assignment="ba/hw1", student="anna"))
    refused(school.client().post(API, headers=tokens["anna"], **data), 413, words)
    page = anna.post(f"/assignments/{school.assignment}/submit", **data)
    refused(page, 413, words)
    assert "script-src 'nonce-'" not in page.headers["Content-Security-Policy"]
    refused(teacher.post(f"/assignments/{school.assignment}/class", **data), 413, words)
    refused(school.client().post(HOOK, data=TOO_LARGE), 413, words)


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"student": "anna"}, 422, "assignment: is missing"),
        ({"assignment": "ba/hw1"}, 422, "student: is missing"),
        ({"assignment": "ba/none", "student": "anna"}, 404, "Write it as course/assignment"),
        ({"assignment": "other/hw1", "student": "anna"}, 404, "Write it as course/assignment"),
        ({"assignment": "hw1", "student": "anna"}, 404, "Write it as course/assignment"),
        ({"assignment": "ba/hw1", "student": "ben"}, 403, "only your own work"),
        ({"assignment": "ba/hw1", "student": "a\0b"}, 422, "student: must not"),
        ({"assignment": "ba/hw1", "student": "x" * 1000}, 422, "student: is too long"),
        ({"assignment": "ba/hw1", "student": "anna", "y" * 900: "1"}, 422, "is not a field"),
    ],
)
@pytest.mark.usefixtures("unchanged")
def test_wrong_fields(
    school: School, tokens: dict[str, dict[str, str]], fields: dict[str, str], status: int, words: str
) -> None:
    data = sent([("a.py", CODE)], **fields)
    refused(school.client().post(API, data=data, headers=tokens["anna"]), status, words)


@pytest.mark.usefixtures("unchanged")
def test_huge_fields_are_called_fields(tmp_path: Path) -> None:
    school = School(tmp_path, max_upload_mb=8)
    client, anna = school.client(), school.token("anna")
    for more in ({"student": "x" * 3_000_000}, {f"f{n}": "1" for n in range(2000)}):
        data = large(sent([("a.py", CODE)], **{"assignment": "ba/hw1", "student": "anna", **more}))
        refused(client.post(API, headers=anna, **data), 413, "too many fields or too much text")
    assert school.count(tables.Submission) == 0
    school.close()


@pytest.mark.usefixtures("unchanged")
def test_no_file_wrong_type_and_bad_tokens(school: School, tokens: dict[str, dict[str, str]]) -> None:
    client, anna = school.client(), tokens["anna"]
    fields = {"assignment": "ba/hw1", "student": "anna"}
    refused(client.post(API, data=fields, headers=anna), 422, "Choose at least one file")
    refused(
        client.post(API, data=sent([("", CODE)], **fields), headers=anna), 422, "Choose at least one file"
    )
    refused(client.post(API, json=fields, headers=anna), 415, "multipart/form-data")
    refused(client.post(API, data=b"x", content_type="text/plain", headers=anna), 415, "multipart/form-data")
    refused(
        client.post(API, data=b"--x\r\nfoo", content_type="multipart/form-data", headers=anna), 422, "missing"
    )
    for header in ({}, {"Authorization": "Basic x"}, {"Authorization": "Bearer grd_x"}):
        refused(client.post(API, data=sent([("a.py", CODE)], **fields), headers=header), 401, "oken")
    for name in ("a" * 3000, "%00", "%F0%9F%92%A5", "..%2f"):
        answer = client.get(f"{API}/{name}", headers=anna)
        assert answer.status_code in (404, 422)
        assert answer.mimetype == "application/problem+json"


def test_characters_databases_refuse_are_left_out(database_url: str) -> None:
    """NUL and lone surrogates in names and text: PostgreSQL would answer them with an error."""
    school = School(database_url)
    client, anna = school.client(), school.token("anna")
    book = notebook().replace(b"x = 1", rb"x = 1 \u0000 \ud800")
    kernel = notebook(metadata={"kernelspec": {"language": "r\x00"}}).replace(b"r\\u0000", rb"r\u0000\udfff")
    for name, data in (
        ("a\0b.py", CODE),
        ("nul.py", b"x = 1\0\n" + CODE * 4),
        ("book.ipynb", book),
        ("kernel.ipynb", kernel),
    ):
        body = sent([(name, data)], assignment="ba/hw1", student="anna")
        answer = client.post(API, data=body, headers=anna)
        assert answer.status_code == 202, (name, answer.get_json())
        assert school.client("anna").get("/submissions/" + answer.get_json()["id"]).status_code == 200
    hook = message(student={"id": "c-1", "name": "N\0ul", "email": "a\0@b"})
    assert client.post(HOOK, data=hook, headers=signed(hook, "nul")).status_code == 200
    lone = message().replace(b"Carla", rb"\ud800")
    assert client.post(HOOK, data=lone, headers=signed(lone, "lone")).status_code == 422
    upload = class_upload(school, school.client("teacher"), zipped(("s\u202ename_1_2_a.py", CODE)))
    assert upload.status_code == 303
    school.close()


def test_many_tokens_do_not_lift_the_upload_rate(tmp_path: Path) -> None:
    school = School(tmp_path, uploads_per_minute=2)
    data = [sent([("a.py", CODE)], assignment="ba/hw1", student="anna") for _ in range(3)]
    answers = [school.client().post(API, data=one, headers=school.token("anna")) for one in data]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert 1 <= int(answers[2].headers["Retry-After"]) <= 60
    school.close()
