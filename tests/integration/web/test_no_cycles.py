"""Pages hold nothing of what they showed, so that the collector of cycles rarely stops the web process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tests.integration.webapp import School, report

LOOKS = 5
MOST = 40
"""Objects that a look leaves; the client of tests leaves 14."""


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def left(look: str, client: FlaskClient) -> float:
    """Objects in cycles that a look at this address leaves."""
    for _ in range(2):
        assert client.get(look).status_code == 200
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(LOOKS):
            client.get(look)
        gc.collect()
        return len(gc.garbage) / LOOKS
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_a_page_leaves_nothing_for_the_collector(school: School) -> None:
    submission = school.hand_in("anna")
    school.grade(submission, report())
    teacher, anna = school.client("teacher"), school.client("anna")
    pages = {
        f"/submissions/{submission}/review": teacher,
        f"/assignments/{school.assignment}/review": teacher,
        f"/submissions/{submission}": anna,
        "/operations": teacher,
        "/": anna,
    }
    assert {look: count for look, client in pages.items() if (count := left(look, client)) > MOST} == {}
