"""Two web apps on one database, as behind a load balancer without sticky sessions."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from grading.store import Store, tables
from tests.integration.webapp import CODE, School, make_app, report

COOKIE = "grader"


class Balanced:
    """A browser whose requests go to each app in turn."""

    def __init__(self, signed_in: FlaskClient, other: FlaskClient) -> None:
        self.cookie = signed_in.get_cookie(COOKIE)
        self._clients = cycle((other, signed_in))

    def ask(self, method: str, path: str, **options: Any) -> TestResponse:
        """Ask the next app, with the cookie that the other one gave."""
        client = next(self._clients)
        client.delete_cookie(COOKIE)
        if self.cookie is not None:
            client.set_cookie(COOKIE, self.cookie.value)
        answer = client.open(path, method=method, **options)
        self.cookie = client.get_cookie(COOKIE)
        return answer


def field(answer: TestResponse, name: str) -> str:
    """The value of a hidden field of a page."""
    return answer.get_data(as_text=True).partition(f'name="{name}" value="')[2].partition('"')[0]


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


@pytest.fixture
def browsers(school: School, tmp_path: Path) -> Iterator[dict[str, Balanced]]:
    store = Store(f"sqlite:///{tmp_path / 'grader.db'}")
    second = make_app(replace(school.services, store=store))
    yield {name: Balanced(school.client(name), second.test_client()) for name in ("anna", "teacher")}
    store.close()


def test_a_submission_goes_on_at_the_other_app(school: School, browsers: dict[str, Balanced]) -> None:
    anna, teacher = browsers["anna"], browsers["teacher"]
    page = f"/assignments/{school.assignment}/submit"
    form = anna.ask("GET", page)
    token = field(form, "csrf_token")
    files = (io.BytesIO(CODE), "work.py")
    sent = {"csrf_token": token, "key": field(form, "key"), "then": "look", "files": files}
    looked = anna.ask("POST", page, data=sent)
    assert looked.status_code == 303, looked.get_data(as_text=True)
    seen = anna.ask("GET", looked.headers["Location"])
    assert "work.py" in seen.get_data(as_text=True)
    confirmed = anna.ask("POST", looked.headers["Location"], data={"csrf_token": token})
    submission = confirmed.headers["Location"].rpartition("/")[2]
    assert anna.ask("GET", confirmed.headers["Location"]).status_code == 200
    assert school.count(tables.Submission) == 1

    # what a page keeps about a class is made anew when the other app changes it
    gradebook = f"/courses/{school.course}/grades"
    before = [teacher.ask("GET", gradebook).get_data(as_text=True) for _ in range(2)]
    school.grade(submission, report())
    after = [teacher.ask("GET", gradebook).get_data(as_text=True) for _ in range(2)]
    assert ["8.5" in one for one in (*before, *after)] == [False, False, True, True]


def test_who_signs_out_at_one_app_is_signed_out_at_the_other(browsers: dict[str, Balanced]) -> None:
    anna = browsers["anna"]
    pages = [anna.ask("GET", "/account") for _ in range(2)]
    assert [one.status_code for one in pages] == [200, 200]
    copied = anna.cookie
    left = anna.ask("POST", "/sign-out", data={"csrf_token": field(pages[1], "csrf_token")})
    assert left.status_code == 303
    for _ in range(2):
        anna.cookie = copied
        assert anna.ask("GET", "/account").status_code == 303
