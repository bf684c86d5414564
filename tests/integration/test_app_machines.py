"""What machines and runs tell, on pages, in the API and in /metrics: weights, counters, phases, drafts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.live import PHASES
from app.machine_metrics import ENGINE_COUNTERS, ENGINE_GAUGES
from grading.dispatch import MachineState
from grading.leases import Lease
from grading.store import tables
from tests.integration.webapp import School, report
from workers.machine.engines.base import COUNTERS

OURS, OTHER = "sha256:06c1097efce0431c", "sha256:ffff097efce0431c"


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


# --- machines -----------------------------------------------------------------------------------------


def machine(name: str, digest: str, *, model: str = "qwen3-coder:30b", **other: Any) -> MachineState:
    place = {"engine": "ollama", "model": model, "digest": digest}
    values = {"alive": True, "beat_age_s": 1.0, **other}
    return MachineState(name, "primary", 8, {"analysis": place}, **values)


def page(school: School) -> str:
    return school.client("teacher").get("/machines").get_data(as_text=True)


def test_live_machines_with_other_weights_are_named_with_what_to_do(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [machine("a", OURS), machine("b", OURS.removeprefix("sha256:")), machine("c", OTHER)]
    monkeypatch.setattr(school.dispatch, "machines", lambda: states)
    shown = page(school)
    assert shown.count(">06c1097efce0</code>") == 3  # of the two machines, and in the warning
    assert "<code>ffff097efce0</code>: c (differs from most)" in shown
    assert (
        "What to do: run <code>ollama pull qwen3-coder:30b</code> on c, or <code>grader deploy</code>"
        in shown
    )
    answer = school.client().get("/api/v1/machines", headers=school.token("teacher")).get_json()
    assert [one["stages"]["analysis"]["digest"] for one in answer["machines"]] == [
        one.stages["analysis"]["digest"] for one in states
    ]
    (warning,) = answer["warnings"]
    assert "c differs from most: run `ollama pull qwen3-coder:30b` on c" in warning


@pytest.mark.parametrize(
    "second",
    [machine("c", OTHER, alive=False), machine("c", OTHER, model="qwen3-coder:480b"), machine("c", "")],
)
def test_only_live_machines_that_claim_the_same_are_compared(
    school: School, monkeypatch: pytest.MonkeyPatch, second: MachineState
) -> None:
    monkeypatch.setattr(school.dispatch, "machines", lambda: [machine("a", OURS), second])
    assert "different weights" not in page(school)
    answer = school.client().get("/api/v1/machines", headers=school.token("teacher")).get_json()
    assert answer["warnings"] == []


def test_what_machines_say_is_escaped(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    states = [machine("a", "<b>1"), replace(machine("b", OURS), engines={"<i>x": {"prompt_tokens": 1}})]
    monkeypatch.setattr(school.dispatch, "machines", lambda: states)
    assert not [tag for tag in ("<b>1", "<i>x") if tag in page(school)]


def test_engines_counters_are_served_by_known_names_only(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = {"prompt_tokens": 4000.0, "cached_tokens": 3000.0, "running": 2.0, "unheard_of": 1.0}
    states = [
        machine("a", OURS, engines={"mlx": counted, "stranger": counted}),
        machine("gone", OURS, engines={"mlx": counted}, alive=False),
    ]
    monkeypatch.setattr(school.dispatch, "machines", lambda: states)
    assert "mlx: 3,000 of 4,000 prompt tokens from the cache" in page(school)
    answer = school.client().get("/api/v1/machines", headers=school.token("teacher")).get_json()
    assert answer["machines"][0]["engines"]["mlx"] == counted
    text = school.client().get("/metrics").get_data(as_text=True)
    served = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("grader_engine_")
    }
    labels = frozenset({("machine", "a"), ("engine", "mlx")})
    assert served == {
        ("grader_engine_prompt_tokens_total", labels): 4000,
        ("grader_engine_cached_tokens_total", labels): 3000,
        ("grader_engine_running", labels): 2,
    }


def test_everything_engines_may_count_has_a_series() -> None:
    assert ENGINE_COUNTERS.keys() | ENGINE_GAUGES.keys() == COUNTERS.keys()
    assert not ENGINE_COUNTERS.keys() & ENGINE_GAUGES.keys()


# --- runs ---------------------------------------------------------------------------------------------


def running(school: School, **lease: Any) -> str:
    """A hand-in of Anna's whose analysis is under way; its id."""
    submission = school.hand_in("anna")
    with school.store.write() as session:
        round_ = session.query(tables.Round).one()
        round_.state = "running"
        stage = next(one for one in round_.stages if one.stage == "analysis")
        stage.state, stage.run_id = "dispatched", "r1"
    school.dispatch.held["r1"] = Lease("r1", "dgx-spark-1", "p", "analysis", **lease)
    return submission


def live(school: School, who: str, submission: str) -> dict[str, Any]:
    answer = school.client(who).get(f"/submissions/{submission}/status.json")
    assert answer.status_code == 200
    (stage,) = [one for one in answer.get_json()["stages"] if one["stage"] == "analysis"]
    return dict(stage)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("queued", "waiting for a turn"),
        ("loading", "loading the model"),
        ("reading", "reading your work"),
        ("generating", "writing"),
        ("unheard of", "at work"),
    ],
)
def test_the_page_says_what_a_machine_does(school: School, phase: str, words: str) -> None:
    submission = running(school, phase=phase)
    assert live(school, "anna", submission)["words"] == words
    assert PHASES.get(phase, "at work") == words


def test_tokens_count_up(school: School) -> None:
    submission = running(school, phase="reading", prompt_tokens=5120)
    assert live(school, "anna", submission)["detail"].endswith("about 5,100 tokens to read")
    school.dispatch.held["r1"] = replace(school.dispatch.held["r1"], phase="generating", tokens=310)
    assert live(school, "anna", submission)["detail"].endswith("310 tokens")


DRAFT = 'Good: <script>alert(1)</script> & "plots"'


def test_a_draft_is_for_who_may_see_the_hand_in_and_ends_with_the_run(school: School) -> None:
    submission = running(school, phase="generating", tokens=9, draft=DRAFT)
    url = f"/api/v1/submissions/{submission}"
    for name in ("anna", "teacher"):
        shown = school.client(name).get(f"/submissions/{submission}").get_data(as_text=True)
        assert "An AI is writing this. Nobody has checked it, and it may still change." in shown
        assert "Good: &lt;script&gt;alert(1)&lt;/script&gt; &amp; &#34;plots&#34;" in shown
        assert "<script>alert" not in shown
        assert live(school, name, submission)["draft"] == DRAFT
        stage = school.client().get(url, headers=school.token(name)).get_json()["stages"]["analysis"]
        assert (stage["phase"], stage["draft"]) == ("generating", DRAFT)
    for name in ("ben", "stranger"):
        assert school.client(name).get(f"/submissions/{submission}").status_code == 404
        assert school.client(name).get(f"/submissions/{submission}/status.json").status_code == 404
        assert school.client().get(url, headers=school.token(name)).status_code == 404
    school.dispatch.held.clear()
    assert live(school, "anna", submission)["draft"] == ""
    school.grade(submission, report())
    assert "alert(1)" not in school.client("anna").get(f"/submissions/{submission}").get_data(as_text=True)


def test_a_draft_is_outside_what_is_read_out(school: School) -> None:
    submission = running(school, phase="generating", draft=DRAFT)
    shown = school.client("anna").get(f"/submissions/{submission}").get_data(as_text=True)
    spoken = [part.partition("</div>")[0] for part in shown.split('aria-live="polite"')[1:]]
    assert any("writing" in part for part in spoken)
    assert not any("Good:" in part for part in spoken)


def test_without_scripts_the_page_says_to_reload_it_while_something_changes(school: School) -> None:
    submission = running(school, phase="reading")
    shown = school.client("anna").get(f"/submissions/{submission}").get_data(as_text=True)
    assert "Reload this page" in shown.partition("<noscript>")[2].partition("</noscript>")[0]
    school.grade(submission, report(), released=True)
    assert "<noscript>" not in school.client("anna").get(f"/submissions/{submission}").get_data(as_text=True)


def test_an_engine_that_does_not_tell_of_a_cache_is_not_said_to_have_none(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [machine("a", OURS, engines={"ollama": {"prompt_tokens": 4000.0, "running": 2.0}})]
    monkeypatch.setattr(school.dispatch, "machines", lambda: states)
    assert "from the cache" not in page(school)
