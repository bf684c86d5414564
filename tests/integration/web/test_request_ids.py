"""The id of a request: in its answer, in what an error says, and in the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
from structlog.contextvars import get_contextvars

from tests.integration.webapp import School

GENERATED = re.compile(r"[0-9a-f]{32}")


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("requests"))
    yield made
    made.close()


@pytest.mark.parametrize(
    "path",
    ["/sign-in", "/", "/nothing", "/static/web/none.css", "/healthz", "/api/v1/me", "/api/v1/openapi.json"],
)
def test_every_answer_has_one(school: School, path: str) -> None:
    client = school.client()
    new = client.get(path).headers["X-Request-ID"]
    assert GENERATED.fullmatch(new)
    assert client.get(path).headers["X-Request-ID"] != new
    own = client.get(path, headers={"X-Request-ID": "trace-17/a"})
    assert own.headers.getlist("X-Request-ID") == ["trace-17/a"]


def test_only_well_formed_ones_are_taken(school: School) -> None:
    client = school.client()
    for sent, taken in {"x" * 100: True, "x" * 101: False, "a b": False, "ä": False, "": False}.items():
        said = client.get("/healthz", headers={"X-Request-ID": sent}).headers["X-Request-ID"]
        assert (said == sent) == taken
        assert taken or GENERATED.fullmatch(said)


@pytest.mark.parametrize("way", ["/api/v1/me", "/account"])
def test_an_error_says_it_and_the_log_too(
    school: School, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        logging.getLogger("somewhere").warning("about %s", get_contextvars()["request"])
        raise RuntimeError("secret detail")

    for endpoint in ("api.me", "profile.show"):
        assert endpoint in school.app.view_functions
        monkeypatch.setitem(school.app.view_functions, endpoint, broken)
    answer = school.client("teacher").get(way, headers={"X-Request-ID": "<mine>"})
    assert (answer.status_code, answer.headers["X-Request-ID"]) == (500, "<mine>")
    if answer.is_json:
        said = answer.get_json()
        assert said["request_id"] == "<mine>"
        assert "logged as <mine>." in said["detail"]
    else:
        assert "Error code 500, request &lt;mine&gt;." in answer.get_data(as_text=True)
    assert "about <mine>" in caplog.text
    assert f"unexpected error <mine> at GET {way}" in caplog.text


def test_refusals_say_it(school: School) -> None:
    headers = {"X-Request-ID": "r-1"}
    assert school.client().get("/api/v1/me", headers=headers).get_json()["request_id"] == "r-1"
    page = school.client("teacher").get("/nothing", headers=headers).get_data(as_text=True)
    assert "Error code 404, request r-1." in page
