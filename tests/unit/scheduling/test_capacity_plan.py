"""`grader plan`: hours, who does what, what limits, and what would help."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.commands.plan import plan as command
from cli.plan_inputs import from_config
from cli.settings import Settings
from grading.broker.canaries import Canaries
from grading.broker.connections import connect
from grading.broker.heartbeats import Heartbeat
from grading.broker.machine_status import MachineState
from grading.config.settings import parse
from grading.execution.throughput import Rate
from grading.scheduling import cost_model
from grading.scheduling.capacity_plan import Machine, NobodyDoes, plan, speed_profile_of
from grading.scheduling.cluster_view import Peer
from grading.scheduling.cost_model import Card, Size

BOTH = ("analysis", "feedback")
FILE = """
[[machines]]
name = "spark"
count = 2
card = "gb10"
[machines.stages]
analysis = { model = "qwen3-coder-30b" }
feedback = { model = "gemma-3-27b-bf16" }
[[machines]]
name = "studio"
bandwidth_gb_s = 819
tflops = 26
efficiency = 0.55
[machines.stages]
feedback = { jobs_per_hour = 320 }
"""


def machine(name: str, **an_hour: float) -> Machine:
    profiles = {stage: speed_profile_of(jobs / 3600, 4) for stage, jobs in an_hour.items()}
    return Machine(Peer(name, 4, tuple(profiles), speed_profiles=profiles), own="analysis")


@pytest.mark.parametrize(
    ("card", "model", "output", "at_once", "an_hour"),
    [
        ("gb10", "qwen3-coder-30b", 1200, 1, 339),
        ("gb10", "qwen3-coder-30b", 1200, 16, 617),
        ("m3-ultra", "gemma-3-27b-bf16", 800, 8, 380),
        ("m4-max", "gemma-3-27b-bf16", 800, 16, 385),
        ("gb10", "gemma-3-27b-bf16", 800, 1, 22),
    ],
)
def test_reckoned_costs_are_those_of_the_data_sheets(
    card: str, model: str, output: int, at_once: int, an_hour: int
) -> None:
    """Ideal figures worked out by hand for 5,000 prompt tokens, 4,000 of them shared."""
    ideal: Card = replace(cost_model.CARDS[card], alone=1.0, batched=1.0)
    found = 3600 * cost_model.rate(ideal, cost_model.MODELS[model], Size(5000, 4000, output), at_once)
    assert found == pytest.approx(an_hour, rel=0.03)


def test_one_machine_does_one_stage_after_the_other() -> None:
    found = plan([machine("a", analysis=100, feedback=50)], BOTH, 100)
    assert found.hours == pytest.approx(3, rel=0.05)
    assert found.weights == {
        "analysis": pytest.approx(1 / 3, abs=0.05),
        "feedback": pytest.approx(2 / 3, abs=0.05),
    }
    assert found.more == {"a": pytest.approx(1.5, rel=0.1)}
    assert found.own is None  # analysis only: nobody would do feedback
    assert found.parts[0].saves_s == pytest.approx(0.01 * 3 * 3600, rel=0.12)
    assert found.parts[0].jobs == {"analysis": 100, "feedback": 100}


def test_the_stage_that_only_one_machine_does_is_the_bottleneck() -> None:
    found = plan([machine("a", analysis=1000), machine("b", feedback=10)], BOTH, 100)
    assert found.hours == pytest.approx(10, rel=0.05)
    assert found.bottleneck.startswith("The bottleneck is feedback: too few")
    assert {part.machine: part.saves_s > 1 for part in found.parts} == {"a": False, "b": True}
    assert found.more == {"a": pytest.approx(found.hours, rel=0.02), "b": pytest.approx(5, rel=0.1)}


def test_fixed_roles_cost_what_free_ones_save() -> None:
    machines = [machine(name, analysis=300, feedback=100) for name in ("a", "b")]
    found = plan(machines, BOTH, 100)
    assert found.hours == pytest.approx((100 / 300 + 100 / 100) / 2, rel=0.15)
    assert found.fixed is not None
    assert found.fixed.hours == pytest.approx(1.0, rel=0.05)
    assert sorted(found.fixed.roles.values()) == ["analysis", "feedback"]


def test_a_class_larger_than_is_played_goes_on_at_its_pace() -> None:
    machines = [machine("a", analysis=300, feedback=100), machine("b", feedback=100)]
    one, four = plan(machines, BOTH, 400), plan(machines, BOTH, 1600)
    assert four.hours == pytest.approx(4 * one.hours, rel=0.02)
    assert sum(part.jobs["feedback"] for part in four.parts) == pytest.approx(1600, abs=2)


def test_nobody_does_a_stage() -> None:
    with pytest.raises(NobodyDoes, match="feedback"):
        plan([machine("a", analysis=10)], BOTH, 1)


# --- the command -------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Result]:
    """`grader plan` with a file."""

    def with_file(text: str, *options: str) -> Result:
        path = tmp_path / "machines.toml"
        path.write_text(text)
        return CliRunner().invoke(command, [str(path), *options], obj=Settings(tmp_path / "none.toml"))

    return with_file


def test_a_file_of_machines_is_planned(run: Callable[..., Result]) -> None:
    told = run(FILE, "--submissions", "100", "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.output)
    assert [part["machine"] for part in found["parts"]] == ["spark 1", "spark 2", "studio"]
    assert sum(part["jobs"]["analysis"] for part in found["parts"]) == pytest.approx(100)
    assert found["parts"][2]["rates_an_hour"] == {"feedback": pytest.approx(320)}
    assert set(found["more"]) == {"spark", "studio"}
    longer = json.loads(run(FILE, "--submissions", "100", "--json", "--output", "analysis=4800").output)
    assert longer["hours"] > 1.3 * found["hours"]
    shown = run(FILE, "--submissions", "100").output
    assert "100 submissions at once: about" in shown
    assert "one more studio" in shown


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("gb10", "gb11", "card 'gb11' is unknown. Use gb10, m3-ultra, m4-max"),
        ("qwen3-coder-30b", "qwen9", "model 'qwen9' is unknown"),
        ("jobs_per_hour = 320", "", "machines.1.stages.feedback: write either jobs_per_hour or model"),
        ("{ jobs_per_hour = 320 }", "{ model = 'x' }\n[[", "machines.toml"),
        ('"studio"', '"spark"', "'spark' is there twice"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(run: Callable[..., Result], old: str, new: str, said: str) -> None:
    assert said in str(run(FILE.replace(old, new)).exception)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--output", "analysis=²"), "Write STAGE=TOKENS"),
        (("--output", "anlysis=2000"), "No machine has the stage anlysis"),
        (("--prompt", "-5"), "--prompt"),
    ],
)
def test_options_that_say_nothing_are_refused(
    run: Callable[..., Result], options: tuple[str, ...], said: str
) -> None:
    told = run(FILE, *options)
    assert told.exit_code != 0
    assert said in told.output + str(told.exception)


def test_machines_of_the_configuration_count_as_they_measured_themselves() -> None:
    stages = {s: {"engine": "rules", "model": "rules", "jobs_per_hour": 90} for s in BOTH}
    config = parse({"machines": [{"name": n, "slots": 4, "stages": stages} for n in ("a", "b")]})
    profile = {"alone_s": 10.0, "full_s": 20.0, "full": 4, "tokens": 1000.0, "seen": 5.0}
    heartbeat = Heartbeat("p", "a", 4, 0, {s: {} for s in BOTH}, speed_profiles={"analysis": profile})
    states = [MachineState("a", "primary", 4, {}, alive=True, heartbeat=heartbeat)]
    (a, b), unknown = from_config(config, states, {"analysis": 2000})
    assert 3600 * a.rates["analysis"] == pytest.approx(4 / 20 * 3600 / 2)  # twice as long answers
    assert 3600 * b.rates["analysis"] == pytest.approx(90)
    assert (a.known, b.known, unknown) == ("configured, measured", "configured", [])


FEW = ["--submissions", "100"]


@pytest.mark.parametrize(("seconds", "bottleneck"), [(600.0, "the sandbox"), (6.0, "the machines")])
def test_the_sandbox_is_named_where_it_is_the_bottleneck(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch, seconds: float, bottleneck: str
) -> None:
    """400 on one machine that does 90 an hour of each stage take some nine hours, 100 some two."""
    stages = "".join(f"{s} = {{ engine = 'rules', model = 'rules', jobs_per_hour = 90 }}\n" for s in BOTH)
    path = tmp_path / "config.toml"
    path.write_text(f"[[machines]]\nname = 'one'\nslots = 4\n[machines.stages]\n{stages}")
    monkeypatch.setenv("GRADER_REDIS_URL", redis_url)
    Canaries(connect(redis_url)).heartbeat("sandbox", "host:1", "", Rate(2, seconds))
    told = CliRunner().invoke(command, ["--json"], obj=Settings(path))
    assert told.exit_code == 0, told.output
    sandbox = json.loads(told.output)["sandbox"]
    assert sandbox == {"slots": 2, "seconds": seconds, "hours": pytest.approx(400 / 2 * seconds / 3600)}
    shown = " ".join(CliRunner().invoke(command, FEW, obj=Settings(path)).output.split())
    assert f"(2 at once, {seconds:.1f} s each): {bottleneck} limits the time." in shown
