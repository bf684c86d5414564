"""Files of an assignment by the API: into folders and out again, as new drafts."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import TestResponse

from app.api.routes import PREFIX
from tests.integration.api.test_resources import Script, code
from tests.integration.webapp import School


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


class Material:
    """What somebody does with the files of an assignment."""

    def __init__(self, school: School, name: str) -> None:
        self.script = Script(school, name)
        self.address = f"/assignments/{school.assignment}/material"

    def put(self, folder: str, files: dict[str, bytes], seen: str = "*") -> TestResponse:
        sent = [(io.BytesIO(data), name) for name, data in files.items()]
        headers = {**self.script.token, **({"If-Match": seen} if seen else {})}
        form: dict[str, Any] = {"folder": folder, "files": sent}
        address, kind = f"{PREFIX}{self.address}", "multipart/form-data"
        return self.script.client.put(address, data=form, headers=headers, content_type=kind)

    def remove(self, path: str, seen: str = "*") -> TestResponse:
        return self.script("DELETE", f"{self.address}/{path}", If_Match=seen)

    def paths(self) -> list[str]:
        return [one["path"] for one in self.script.get(self.address)["items"]]


def test_files_come_and_go_as_drafts(school: School) -> None:
    teacher = Material(school, "teacher")
    first = teacher.put("data", {"a.csv": b"a,b\n1,2\n", "2026/b.csv": b"1\n"})
    assert (first.status_code, first.get_json()) == (200, {"version": 2, "published": False}), first.text
    second = teacher.put("tests", {"test_work.py": b"x = 1\n"}, first.headers["ETag"])
    assert second.get_json()["version"] == 3
    listed = teacher.script("GET", teacher.address)
    assert listed.headers["ETag"] == second.headers["ETag"]
    shown = listed.get_json()
    assert shown["version"] == 3
    assert {one["path"]: one["size"] for one in shown["items"]} == {
        "data/a.csv": 8,
        "data/2026/b.csv": 2,
        "tests/test_work.py": 6,
    }
    got = teacher.script("GET", shown["items"][1]["url"])
    assert (got.data, got.mimetype) == (b"a,b\n1,2\n", "application/octet-stream")
    assert got.headers["Content-Disposition"] == "attachment; filename=a.csv"
    assert teacher.remove("data/2026/b.csv", second.headers["ETag"]).get_json()["version"] == 4
    assert teacher.paths() == ["data/a.csv", "tests/test_work.py"]


def test_the_rubric_and_the_files_have_one_state(school: School) -> None:
    """Who saves a rubric sees that somebody changed files meanwhile, and the other way round."""
    teacher = Material(school, "teacher")
    rubric = f"/assignments/{school.assignment}/rubric?which=newest"
    seen = teacher.script("GET", rubric).headers["ETag"]
    assert teacher.put("data", {"a.csv": b"1\n"}, seen).status_code == 200
    assert code(teacher.put("data", {"a.csv": b"2\n"}, seen)) == (412, "changed_meanwhile")
    assert code(teacher.remove("data/a.csv", seen)) == (412, "changed_meanwhile")
    assert code(teacher.put("data", {"a.csv": b"2\n"}, "")) == (428, "if_match_missing")
    assert code(teacher.put("data", {"a.csv": b"1\n"}))[0] == 409  # nothing changed
    assert teacher.paths() == ["data/a.csv"]


def test_what_cannot_be_taken_changes_nothing(school: School) -> None:
    teacher = Material(school, "teacher")
    assert code(teacher.put("rubrics", {"a.csv": b"1\n"})) == (422, "field_invalid")
    assert code(teacher.put("data", {}))[0] == 422
    assert code(teacher.put("data", {"../../a.csv": b"1\n"}))[0] == 422
    assert code(teacher.put("data", {".hidden": b"1\n"}))[0] == 422
    wrong = teacher.script("PUT", teacher.address, {"folder": "data"}, If_Match="*")
    assert code(wrong) == (415, "wrong_content_type")
    assert code(teacher.remove("data/none.csv")) == (404, "not_found")
    assert code(teacher.script("GET", f"{teacher.address}/data/none.csv")) == (404, "not_found")
    large = teacher.script.client.put(
        f"{PREFIX}{teacher.address}",
        data=b" " * (2 * 1024 * 1024 + 1),
        headers={**teacher.script.token, "If-Match": "*"},
        content_type="multipart/form-data; boundary=x",
    )
    assert code(large) == (413, "upload_too_large")
    assert teacher.paths() == []
    assert teacher.script.get(teacher.address)["version"] == 1


def test_students_have_what_counts_and_is_for_them(school: School) -> None:
    teacher, anna = Material(school, "teacher"), Script(school, "anna")
    files = f"/assignments/{school.assignment}/files"
    for folder in ("starter", "data", "solution", "tests"):
        assert teacher.put(folder, {f"{folder}.py": b"x = 1\n"}).status_code == 200
    assert anna.get(files) == {"items": []}  # still a draft
    newest = teacher.script.get(teacher.address)["version"]
    address = f"/assignments/{school.assignment}/versions/{newest}/publish"
    assert teacher.script("POST", address).get_json()["published"]
    listed = anna.get(files)["items"]
    assert [one["path"] for one in listed] == ["starter/starter.py", "data/data.py"]
    assert anna("GET", listed[0]["url"]).data == b"x = 1\n"
    assert code(anna("GET", f"{files}/tests/tests.py")) == (404, "not_found")
    assert code(anna("GET", teacher.address))[0] == 403
    assert Material(school, "anna").put("data", {"a.csv": b"1\n"}).status_code == 403
