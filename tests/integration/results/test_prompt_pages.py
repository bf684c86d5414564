"""The page and the address of the API that show staff what a model read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grading.domain.jobs import Provenance, SentPrompt, Timings, Tokens
from grading.store.rounds import prompts
from grading.store.tables import Round
from tests.integration.webapp import School, report

SHARED = "You review homework.\nThe task: ünder 5 < 6 & more"
OWN = "<<<5eed\n+ 1| x <- '</pre><script>alert(1)</script>'\n5eed>>>"


def sent(own: str = OWN) -> SentPrompt:
    return SentPrompt(system=SHARED, user=own)


def hashed(prompt: SentPrompt) -> str:
    return hashlib.sha256(f"{prompt.system}\0{prompt.user}".encode()).hexdigest()


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


HOW = {
    "prompt_version": "analysis-3",
    "prompt_hash": hashed(sent()),
    "tokens": {"prompt": 4120, "cached": 3880, "output": 512},
    "timings": {"queued_s": 0.25, "prompt_s": 1.5},
    "sampling": {"temperature": 0.3, "top_p": 0.9, "seed": 7, "format": "json_schema_bound"},
}


def test_staff_find_the_exact_prompt_below_the_result(school: School) -> None:
    submission = school.submit("anna")
    origin = Provenance(
        machine="dgx-spark-1", engine="mlx", model="m", timings=Timings(queued_s=0.25, prompt_s=1.5),
        tokens=Tokens(prompt=4120, cached=3880, output=512), sampling=HOW["sampling"],
    )  # fmt: skip
    school.grade(submission, report(stages={"analysis": origin}), released=True)
    run = school.ran(submission, "analysis", sent(), **HOW)
    url = f"/submissions/{submission}/runs/{run}/prompt"
    below = school.client("grader").get(f"/submissions/{submission}").get_data(as_text=True)
    assert f'href="{url}"' in below
    for words in (
        "4120, 3880 of them from the cache",
        "Queue time",
        "0.25 s",
        "top-p 0.9",
        "seed 7",
        "constrained to the answer schema",
    ):
        assert words in below
    assert "Model load time" not in below  # the engine did not tell
    page = school.client("teacher").get(url).get_data(as_text=True)
    assert "+ 1| x &lt;- &#39;&lt;/pre&gt;&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert (
        '<pre class="example" data-message="system">\nYou review homework.\nThe task: ünder 5 &lt; 6' in page
    )
    assert hashed(sent()) in page
    assert "verified" in page
    assert "This differs from what the machine reported." not in page
    mine = school.client("anna").get(f"/submissions/{submission}").get_data(as_text=True)
    assert "/prompt" not in mine
    assert "Queue time" in mine


def test_the_prompt_of_what_is_dead_stands_beside_the_fault(school: School) -> None:
    submission = school.submit("anna")
    run = school.ran(submission, "analysis", sent(), "failed", **HOW, uses_model=False)
    with school.store.write() as session:
        round_ = session.query(Round).filter_by(submission_id=submission).one()
        stage = next(one for one in round_.stages if one.stage == "analysis")
        stage.state, stage.error, stage.run_id = "dead", "output_invalid", run
    url = f"/submissions/{submission}/runs/{run}/prompt"
    assert f'href="{url}"' in school.client("teacher").get(f"/submissions/{submission}").get_data(
        as_text=True
    )
    assert url not in school.client("anna").get(f"/submissions/{submission}").get_data(as_text=True)
    page = school.client("teacher").get(url).get_data(as_text=True)
    assert "Its result does not count." in page
    assert "No language model read these messages" in page


def test_who_may_read_a_prompt(school: School) -> None:
    submission, other = school.submit("anna"), school.submit("ben")
    run = school.ran(submission, "analysis", sent(), **HOW)
    school.grade(submission, report(), released=True)
    expected = {"anna": 403, "ben": 404, "stranger": 404, "grader": 200, "teacher": 200, "admin": 200}
    path = f"/submissions/{submission}/runs/{run}/prompt"
    api = school.client()
    for name, status in expected.items():
        page = school.client(name).get(path)
        assert page.status_code == status, name
        answer = api.get(f"/api/v1{path}", headers=school.token(name, "read"))
        assert answer.status_code == status, name
        for one in (page, answer):
            assert ("You review homework" in one.get_data(as_text=True)) == (status == 200)
        listed = api.get(f"/api/v1/submissions/{submission}", headers=school.token(name, "read"))
        assert (listed.get_json().get("runs") == {"analysis": run}) == (status == 200)
    assert api.get(f"/api/v1{path}").status_code == 401
    assert api.get(f"/api/v1{path}", headers=school.token("teacher", "submit")).status_code == 403
    # a run is found only with its own submission
    elsewhere = path.replace(submission, other)
    assert school.client("teacher").get(elsewhere).status_code == 404
    assert api.get(f"/api/v1{elsewhere}", headers=school.token("teacher")).status_code == 404


def test_the_api_gives_both_messages_and_how_they_were_used(school: School) -> None:
    submission = school.submit("anna")
    run = school.ran(submission, "analysis", sent(), **HOW)
    path = f"/api/v1/submissions/{submission}/runs/{run}/prompt"
    body = school.client().get(path, headers=school.token("teacher")).get_json()
    assert (body["system"], body["user"]) == (SHARED, OWN)
    assert (body["intact"], body["missing"], body["stage"], body["attempt"]) == (True, None, "analysis", 1)
    assert body["sha256"] == body["provenance"]["prompt_hash"] == hashed(sent())
    assert body["provenance"]["tokens"] == HOW["tokens"]
    without = school.ran(submission, "feedback")
    body = school.client().get(path.replace(run, without), headers=school.token("teacher")).get_json()
    assert (body["system"], body["sha256"], body["intact"], body["missing"]) == (
        None,
        None,
        None,
        "no prompt",
    )


def test_a_prompt_that_is_not_what_the_machine_hashed_is_shown_as_that(school: School) -> None:
    submission = school.submit("anna")
    run = school.ran(submission, "analysis", sent("something else"), **HOW)
    page = school.client("teacher").get(f"/submissions/{submission}/runs/{run}/prompt").get_data(as_text=True)
    assert '<p class="alert alert-danger" role="alert">' in page
    assert "This differs from what the machine reported." in page
    assert hashed(sent("something else")) in page
    assert hashed(sent()) in page
    assert "checked" not in page


@pytest.mark.parametrize(
    ("state", "sent_along", "how", "missing", "words"),
    [
        ("dispatched", None, {}, "not over", "has not finished"),
        ("lost", None, {}, "lost", "stopped responding"),
        ("failed", None, {}, "no prompt", "failed before the prompt was built"),
        ("done", None, HOW, "not sent", "an older version of Grader"),
        ("done", sent("x" * (prompts.MOST_BYTES + 1)), HOW, "too large", "larger than 4 MB"),
    ],
)
def test_the_page_says_why_there_is_no_prompt(
    school: School, state: str, sent_along: SentPrompt | None, how: dict[str, Any], missing: str, words: str
) -> None:
    submission = school.submit("anna")
    run = school.ran(submission, "analysis", sent_along, state, **how)
    page = school.client("teacher").get(f"/submissions/{submission}/runs/{run}/prompt").get_data(as_text=True)
    assert f'data-missing="{missing}"' in page
    assert words in page
    assert "data-message" not in page
