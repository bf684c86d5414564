"""What machines and runs tell, on pages, in the API and in /metrics: weights, counters, phases, drafts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.submissions.status_texts import PHASES
from cli.commands import machines as machines_command
from grading.broker.heartbeats import Heartbeat, Lease, reason
from grading.broker.machine_status import MAX_METRICS, EngineMetric, MachineState, an_hour, with_heartbeats
from grading.store import tables
from tests.integration.webapp import School, report, without_tokens
from workers.machine.messages import REFUSED_CONNECTION

OURS, OTHER = "sha256:06c1097efce0431c", "sha256:ffff097efce0431c"


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


# --- machines -----------------------------------------------------------------------------------------


def machine(name: str, digest: str, *, model: str = "qwen3-coder:30b", **other: Any) -> MachineState:
    place = {"engine": "ollama", "model": model, "digest": digest, "source": "ollama"}
    values = {"alive": True, "heartbeat_age_s": 1.0, **other}
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


def test_a_model_whose_weights_changed_is_an_alarm(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = machine("a", OTHER)
    place = {**changed.stages["analysis"], "before": OURS}
    states = [replace(changed, stages={"analysis": place}), machine("b", OTHER)]
    monkeypatch.setattr(school.dispatch, "machines", lambda: states)
    shown = page(school)
    assert "Now <code>ffff097efce0</code>, before <code>06c1097efce0</code>." in shown
    assert "accept the new one with <code>grader accept-models a</code>" in shown
    (warning,) = (
        school.client().get("/api/v1/machines", headers=school.token("teacher")).get_json()["warnings"]
    )
    assert warning.startswith("qwen3-coder:30b (ollama) on a has other weights than before")
    text = school.client().get("/metrics").get_data(as_text=True)
    assert 'grader_model_weights_changed{engine="ollama",machine="a"} 1' in text
    assert 'grader_model_weights_changed{engine="ollama",machine="b"} 0' in text


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


def test_metrics_of_engines_are_served_as_their_machine_declares_them(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = {
        "prompt_tokens": EngineMetric("counter", "Tokens of prompts."),
        "cached_tokens": EngineMetric("counter", "Tokens from a cache."),
        "running": EngineMetric("gauge", "Generations now."),
    }
    counted = {"prompt_tokens": 4000.0, "cached_tokens": 3000.0, "running": 2.0, "unheard_of": 1.0}
    other = {"running": EngineMetric("counter", "Something else.")}
    states = [
        machine("a", OURS, engines={"ollama": counted, "stranger": counted}, metrics=declared),
        machine("b", OURS, engines={"ollama": {"running": 1.0}}, metrics={"running": declared["running"]}),
        machine("c", OURS, engines={"ollama": {"running": 7.0}}, metrics=other),
        machine("gone", OURS, engines={"ollama": counted}, metrics=declared, alive=False),
    ]
    monkeypatch.setattr(school.dispatch, "machines", lambda: states)
    assert "ollama: 3,000 of 4,000 input tokens from the cache" in page(school)
    answer = school.client().get("/api/v1/machines", headers=school.token("teacher")).get_json()
    assert answer["machines"][0]["engines"]["ollama"] == counted
    text = school.client().get("/metrics").get_data(as_text=True)
    assert "# HELP grader_engine_running Generations now." in text
    served = {
        (sample.name, sample.labels["machine"], sample.labels["engine"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("grader_engine_")
    }
    assert served == {
        ("grader_engine_prompt_tokens_total", "a", "ollama"): 4000,
        ("grader_engine_cached_tokens_total", "a", "ollama"): 3000,
        ("grader_engine_running", "a", "ollama"): 2,
        ("grader_engine_running", "b", "ollama"): 1,
    }


def test_what_a_machine_declares_is_bounded() -> None:
    fine = {"kind": "counter", "help": "Fine."}
    declared: dict[str, Any] = {
        **{f"many_{chr(97 + n // 26)}{chr(97 + n % 26)}": fine for n in range(100)},
        **dict.fromkeys(("Capital", "a b", "x" * 61, "requests_total", "1st", ""), fine),
        "kindless": {"help": "No kind."},
        "summary": {"kind": "summary", "help": "Not known."},
        "helpless": {"kind": "gauge", "help": 7},
        "long": {"kind": "gauge", "help": "two\nlines " + "x" * 1000},
    }
    state = MachineState("a", "primary", 1, {})
    found = with_heartbeats(state, [Heartbeat("p", "a", 1, 0, metrics=declared)]).metrics
    assert len(found) == MAX_METRICS
    assert found["long"].help.startswith("two lines xxx")
    assert len(found["long"].help) == 200
    assert all(name == "long" or name.startswith("many_") for name in found)


# --- runs ---------------------------------------------------------------------------------------------


def running(school: School, **lease: Any) -> str:
    """A submission of Anna's whose analysis is under way; its id."""
    submission = school.submit("anna")
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
        ("queued", "queued"),
        ("loading", "loading the model"),
        ("reading", "reading your work"),
        ("generating", "generating"),
        ("unheard of", "running"),
    ],
)
def test_the_page_says_what_a_machine_does(school: School, phase: str, words: str) -> None:
    submission = running(school, phase=phase)
    assert live(school, "anna", submission)["words"] == words
    assert PHASES.get(phase, "running") == words


def test_tokens_count_up(school: School) -> None:
    submission = running(school, phase="reading", prompt_tokens=5120)
    assert live(school, "anna", submission)["detail"].endswith("about 5,100 tokens to read")
    school.dispatch.held["r1"] = replace(school.dispatch.held["r1"], phase="generating", tokens=310)
    assert live(school, "anna", submission)["detail"].endswith("310 tokens")


DRAFT = 'Good: <script>alert(1)</script> & "plots"'


def test_a_draft_is_for_who_may_see_the_submission_and_ends_with_the_run(school: School) -> None:
    submission = running(school, phase="generating", tokens=9, draft=DRAFT)
    url = f"/api/v1/submissions/{submission}"
    for name in ("anna", "teacher"):
        shown = school.client(name).get(f"/submissions/{submission}").get_data(as_text=True)
        assert "AI-generated draft, not reviewed yet. It may still change." in shown
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
    assert any("generating" in part for part in spoken)
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


# --- speed, health and what they take -----------------------------------------------------------------


def alive_machine(**told: Any) -> MachineState:
    profile = {"alone_s": 10.0, "full_s": 40.0, "full": 8, "tokens": 1200.0, "seen": 30.0, "health": 0.33}
    values: dict[str, Any] = {
        "limit": 6,
        "speed_profiles": {"analysis": profile},
        "load_s": {"analysis": 40.0},
        "circuits": {
            "ollama": {"state": "open", "why": "it <b>fails", "since_s": 12.0, "stages": ["analysis"]}
        },
        "takes": ("analysis", "analysis.batch"),
        "why": "it takes analysis",
        "joins_after_s": 2.0,
        **told,
    }
    heartbeat = Heartbeat(
        "p", "dgx-spark-1", 8, 3, {"analysis": {"engine": "ollama", "model": "qwen3-coder:30b"}}, **values
    )
    return MachineState(
        "dgx-spark-1",
        "spare",
        8,
        heartbeat.stages,
        alive=True,
        busy=3,
        heartbeat_age_s=1.0,
        heartbeat=heartbeat,
    )


def test_the_page_says_how_fast_a_machine_is_and_what_it_takes_and_why(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = school.submit("anna")
    run = school.ran(submission, "analysis")
    with school.store.write() as session:
        row = session.get_one(tables.Run, run)
        row.machine, row.seconds, row.output_tokens, row.finished_at = (
            "dgx-spark-1",
            31.4,
            900,
            row.dispatched_at,
        )
    monkeypatch.setattr(school.dispatch, "machines", lambda: [alive_machine()])
    shown = " ".join(page(school).split())
    for words in (
        "Runs at 33 % of its usual speed.",
        "ollama (analysis): circuit breaker open for 12 s: it &lt;b&gt;fails.",
        "The model for Technical review is not loaded. Loading takes about 40 s.",
        "used only after work has waited for 2 s",
        "measured concurrency limit: 6",
        "Receives work from the queues analysis, analysis.batch: it takes analysis.",
        "Technical review: done, 31 s, 900 tokens",
        "227 runs per hour",  # 6 of 31.4 s each at usual speed, now three times as long
        "1 more submission is queued in the database and not sent to a machine yet.",
    ):
        assert words in shown, words
    assert submission not in shown
    assert "anna" not in without_tokens(shown).lower()
    answer = school.client().get("/api/v1/machines", headers=school.token("teacher")).get_json()
    (told,) = answer["machines"]
    assert told["speeds"]["analysis"]["jobs_per_hour"] == pytest.approx(227, rel=0.01)
    assert told["circuits"] == [
        {
            "engine": "ollama", "state": "open", "why": "it <b>fails", "why_code": "", "why_params": {},
            "stages": ["analysis"], "since_s": 12.0,
        }
    ]  # fmt: skip
    assert (told["limit"], told["takes"], told["joins_after_s"]) == (6, ["analysis", "analysis.batch"], 2.0)
    assert told["last_runs"][0]["seconds"] == 31.4
    assert answer["waiting"] == {"interactive": 1, "batch": 0}


def test_why_an_engine_gets_no_work_is_said_in_the_readers_language(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = REFUSED_CONNECTION(engine="ollama at 127.0.0.1", seconds="5")
    told = {"state": "probing", "stages": ["analysis"], "since_s": 12.0, **reason(why)}
    monkeypatch.setattr(school.dispatch, "machines", lambda: [alive_machine(circuits={"ollama": told})])
    half_open = "ollama (analysis): circuit breaker half-open: ollama at 127.0.0.1 refused the connection"
    assert half_open in page(school)
    answered = school.client("teacher").get("/machines", headers={"Accept-Language": "de"})
    assert "ollama at 127.0.0.1 hat die Verbindung abgelehnt" in answered.get_data(as_text=True)
    answer = school.client().get("/api/v1/machines", headers=school.token("teacher")).get_json()
    (circuit,) = answer["machines"][0]["circuits"]
    assert (circuit["why"], circuit["why_code"]) == (why.message, "engine.refused_connection")
    assert circuit["why_params"] == {"engine": "ollama at 127.0.0.1", "seconds": "5"}


def test_gateway_requests_are_told_beside_the_runs(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    states = [
        replace(alive_machine(), gateway_requests=2),
        replace(alive_machine(), name="other", gateway_requests=1),
        alive_machine(),
    ]
    monkeypatch.setattr(school.dispatch, "machines", lambda: states)
    shown = page(school)
    assert (
        shown.count("slots busy, 2 gateway requests;"),
        shown.count("slots busy, 1 gateway request;"),
    ) == (1, 1)
    assert shown.count("slots busy;") == 1
    answer = school.client().get("/api/v1/machines", headers=school.token("teacher")).get_json()
    assert [one["gateway_requests"] for one in answer["machines"]] == [2, 1, 0]
    assert 'grader_machine_gateway_requests{machine="other"} 1.0' in school.client().get("/metrics").text


@pytest.mark.parametrize(
    ("rate", "words"), [(0.44, "0.4"), (9.6, "9.6"), (227.4, "227"), (9999.6, "10,000"), (2e6, "over 10,000")]
)
def test_figures_are_no_finer_than_anybody_wants_to_know(rate: float, words: str) -> None:
    assert an_hour(rate) == words


def test_an_engine_without_a_model_is_fast_beyond_words(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {"alone_s": 0.002, "full_s": 0.015, "full": 8, "seen": 9.0}
    monkeypatch.setattr(
        school.dispatch, "machines", lambda: [alive_machine(speed_profiles={"analysis": quick})]
    )
    shown = page(school)
    assert "over 10,000 runs per hour" in shown
    assert '<td class="text-end">under 1</td>' in shown


def test_a_machine_that_tells_nothing_or_nonsense_is_shown_all_the_same(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    nonsense = alive_machine(
        speed_profiles={"analysis": {"alone_s": "soon"}}, circuits={}, load_s={}, limit=900, joins_after_s=0
    )
    states = [
        nonsense,
        replace(alive_machine(), name="gone", alive=False),
        MachineState("new", "primary", 8, {}),
    ]
    monkeypatch.setattr(school.dispatch, "machines", lambda: states)
    shown = page(school)
    assert "not measured yet" in shown
    assert shown.count("None yet.") == 3
    assert "measured concurrency limit" not in shown
    assert "Receives work from the queues" in shown
    answer = school.client().get("/api/v1/machines", headers=school.token("teacher")).get_json()
    assert [one["speeds"] for one in answer["machines"]] == [{}, {}, {}]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"reserved": "testing"}, "Accepts only work that is sent to it directly."),
        ({"reserved": "batch"}, "Accepts batch work only."),
        ({"takes": (), "why": "all slots are in use"}, "Accepts no work now: all slots are in use."),
    ],
)
def test_why_a_machine_takes_little_is_said(
    school: School, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(school.dispatch, "machines", lambda: [alive_machine(**told)])
    assert words in " ".join(page(school).split())


def test_the_command_says_it_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    state = replace(alive_machine(), gateway_requests=2)
    dispatch = SimpleNamespace(machines=lambda: [state], backlog=lambda: {"analysis": 2})
    monkeypatch.setattr(machines_command, "open_dispatch", lambda _: dispatch)
    run = machines_command.machines.callback
    assert run is not None
    settings = SimpleNamespace(running=None)
    with click.Context(machines_command.machines, obj=settings):
        run(False)
    said = capsys.readouterr().out
    assert "dgx-spark-1: Runs at 33 % of its usual speed." in said
    assert "dgx-spark-1 takes runs from analysis, analysis.batch: it takes analysis" in said
    assert "227" in said
    assert "dgx-spark-1: 2 gateway requests" in said
    with click.Context(machines_command.machines, obj=settings):
        run(True)
    (told,) = json.loads(capsys.readouterr().out)["machines"]
    assert told["condition"]["health"] == 0.33
    assert told["condition"]["why"] == "it takes analysis"
    assert [one["why"] for one in told["condition"]["circuits"]] == ["it <b>fails"]
    assert told["condition"]["why_code"] == (state.heartbeat and state.heartbeat.why_code)
