"""A student and an instructor in a real browser, over loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from grading.broker.heartbeats import Heartbeat, Lease, reason
from grading.broker.machine_status import MachineState
from grading.domain.document import Location
from grading.domain.jobs import Finding, SentPrompt
from grading.domain.stages import AnalysisOutput
from grading.scheduling.routing import TAKES
from grading.store import tables
from tests.e2e.browsing import come_in, follow, look, sign_in, with_passwords
from tests.integration.sandbox import executed
from tests.integration.webapp import CODE, School, report

DRAFT = "You read <b>the data</b> with pandas"


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("school"))
    yield with_passwords(made, "anna", "teacher")
    made.close()


def test_from_sign_in_to_the_result(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    sign_in(page, site, "anna")
    expect(page.get_by_role("heading", name="Assignments")).to_be_visible()
    follow(page, page.get_by_role("link", name="Submit Homework hw1"))
    expect(page.get_by_text("Accepted file types: .ipynb, .R,")).to_be_visible()
    big = {"name": "big.py", "mimeType": "text/plain", "buffer": b"x" * (3 * 1024 * 1024)}
    page.get_by_label("Your files").set_input_files([big])
    expect(page.get_by_role("alert")).to_contain_text("larger than 2 MB")
    page.get_by_role("button", name="Remove big.py").click()
    files = [{"name": "work.py", "mimeType": "text/plain", "buffer": CODE + b"# <b>x</b>\n"}]
    page.get_by_label("Your files").set_input_files(files)
    expect(page.get_by_role("alert")).to_be_hidden()
    page.get_by_role("button", name="Submit now").click()
    status = page.locator("[data-live]")
    expect(status).to_contain_text("Received")
    page.evaluate("window.stayed = true")
    submission = page.url.rsplit("/", 1)[-1]
    advance(school, submission, "queued")
    expect(status).to_contain_text("Queued", timeout=60_000)
    expect(status).to_contain_text("Position 1")
    advance(school, submission, "running")
    expect(status).to_contain_text("Technical review: generating", timeout=60_000)
    expect(status).to_contain_text("qwen3-coder:30b · 4 s · 120 tokens")
    expect(status).to_contain_text("AI-generated draft, not reviewed yet. It may still change.")
    expect(status.get_by_text(DRAFT, exact=True)).to_be_visible()  # as text, whatever is in it
    look(page, pictures, "3-running")
    school.grade(submission, report(), released=True)
    expect(page.locator("#points").get_by_text("8.5 of 10 points")).to_be_visible(timeout=60_000)
    expect(page.locator(".comment").filter(has_text="Good use of pandas")).to_be_visible()
    expect(status.locator("[data-draft]:visible")).to_have_count(0)
    expect(status).not_to_contain_text("You read")
    assert page.evaluate("window.stayed") is True
    page.get_by_text("How this result was produced").click()
    look(page, pictures, "4-result", all_widths=True)


def advance(school: School, submission: str, state: str) -> None:
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission).one()
        round_.state = state
        if state == "running":
            for stage in round_.stages:
                stage.state, stage.run_id = "dispatched", f"{stage.stage}-1"
            lease = Lease("analysis-1", "dgx-spark-1", "p", "analysis", "generating", 120, 4.0, draft=DRAFT)
            school.dispatch.held["analysis-1"] = lease


def test_a_hostile_notebook_runs_nothing(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    bad = "<script>window.pwned=1</script><img src=//evil.example/x onerror=window.pwned=1>"
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": f"{bad}\n   day  sum\n0  mon    3\n"},
        {"output_type": "display_data", "metadata": {}, "data": {"text/html": bad, "image/png": "aGk="}},
    ]
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": f"# Homework\n\n{bad}\n![x](//evil.example/y)"},
        {
            "cell_type": "code",
            "metadata": {},
            "execution_count": 1,
            "source": f"import pandas as pd\n# {bad}\nfor day in days:\n    print(day, '{bad}')",
            "outputs": outputs,
        },
    ]
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    submission = school.submit("anna", data=json.dumps(notebook).encode(), name="work.ipynb")
    places = (Location(document="work.ipynb", cell=2, line=3), Location(document="work.ipynb", cell=2))
    findings = tuple(Finding(severity="major", title=bad, detail=bad, location=p) for p in places)
    school.grade(
        submission,
        report(bad, analysis=AnalysisOutput(judgements=(), summary=bad, findings=findings)),
        released=True,
    )
    come_in(page, site, school, "anna")
    page.goto(f"{site}/submissions/{submission}")
    expect(page.get_by_text("Cell 2, code")).to_be_visible()
    expect(page.locator(".comment").filter(has_text="Important: ")).to_have_count(2)
    assert page.evaluate("window.pwned") is None
    assert page.locator("main script, main img, main iframe").count() == 0
    look(page, pictures, "a-notebook")


def test_tests_and_runs_are_shown(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    submission = executed.submit_tested(school)
    come_in(page, site, school, "anna")
    page.goto(f"{site}/submissions/{submission}")
    tests = page.locator(".tests")
    expect(tests).to_contain_text("2 of 4 tests passed, 1 of 2 hidden tests passed")
    expect(tests.get_by_text("✗ not passed")).to_have_count(2)
    expect(tests.get_by_text("✓ passed").first).to_be_hidden()
    tests.get_by_text("2 passed", exact=True).focus()
    page.keyboard.press("Enter")
    expect(tests.get_by_text("✓ passed").first).to_be_visible()
    expect(page.get_by_text("When we ran your work: it stopped at this line")).to_be_visible()
    assert page.evaluate("window.pwned") is None
    assert page.locator("main script, main img, main iframe").count() == 0
    look(page, pictures, "b-tests", all_widths=True)
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator(".menu-reader summary").click()
    follow(page, page.get_by_role("button", name="Sign out"))
    page.set_viewport_size({"width": 1280, "height": 800})
    sign_in(page, site, "teacher")
    page.goto(f"{site}/submissions/{submission}")
    expect(tests).to_contain_text("hidden-input")
    look(page, pictures, "d-tests-staff")


def test_the_instructors_pages(careful: Page, school: School, site: str, pictures: Path) -> None:
    page = careful
    waiting = school.submit("ben")
    school.grade(waiting, report(held=True))
    come_in(page, site, school, "teacher")
    page.goto(site)
    expect(page.get_by_role("heading", name="To do")).to_be_visible()
    page.get_by_role("link", name="All submissions").click()
    page.get_by_label("Assignment").select_option(label="Ba: Homework hw1")
    follow(page, page.get_by_role("button", name="Apply"))
    page.goto(f"{site}/submissions/{waiting}")
    follow(page, page.get_by_role("link", name="Review and release"))
    page.get_by_text("Release …").click()
    page.get_by_role("button", name="Release anyway").click()
    expect(page.get_by_text("The student can now see this grade.")).to_be_visible()
    page.goto(f"{site}/tokens")
    look(page, pictures, "8-tokens")


def test_the_machines_are_readable_on_a_phone_and_on_a_wall(
    careful: Page, school: School, site: str, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = careful
    monkeypatch.setattr(school.dispatch, "machines", four_machines)
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/machines")
    expect(page.get_by_text("Runs at 33 % of its usual speed.")).to_be_visible()
    page.get_by_text("Recent runs").first.click()
    look(page, pictures, "8-machines", all_widths=True)
    monkeypatch.setattr(school.dispatch, "away", True)
    page.goto(f"{site}/machines")
    expect(page.get_by_text("Redis is not reachable.")).to_be_visible()


def four_machines() -> list[MachineState]:
    """As busy, slow, broken and lost ones tell."""
    places = {
        "analysis": {"engine": "ollama", "model": "qwen3-coder:30b", "digest": "sha256:06c1097efce0431c"},
        "feedback": {"engine": "mlx", "model": "mlx-community/gemma-3-27b-it-bf16"},
    }
    profile = {"alone_s": 16.0, "full_s": 98.0, "full": 16, "tokens": 1200.0, "seen": 30.0}
    told: dict[str, dict[str, Any]] = {
        "dgx-spark-1": {
            "speed_profiles": {"analysis": profile},
            "takes": ("analysis", "analysis.batch"),
            **reason(TAKES(stage="analysis")),
            "limit": 12,
        },
        "mac-studio-1": {
            "speed_profiles": {"feedback": {**profile, "health": 0.33}},
            "takes": ("feedback",),
            **reason(TAKES(stage="feedback")),
        },
        "dgx-spark-2": {
            "circuits": {"ollama": {"state": "open", "why": "connection refused", "since_s": 75.0}},
            "joins_after_s": 2.0,
            "load_s": {"feedback": 40.0},
        },
        "mac-studio-2": {},
    }
    found = []
    for name, values in told.items():
        heartbeat = Heartbeat(
            "p",
            name,
            16,
            9,
            places,
            **values,
        )
        alive, role = name != "mac-studio-2", "spare" if name.endswith("2") else "primary"
        state = MachineState(
            name, role, 16, places, alive=alive, busy=9 * alive, heartbeat_age_s=1.0, heartbeat=heartbeat
        )
        found.append(state)
    return found


def test_a_class_zip_is_previewed_and_submitted(
    careful: Page, school: School, site: str, pictures: Path
) -> None:
    import io
    import zipfile

    page, packed = careful, io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("anna_LATE_111_222_work.py", "ben_work.py", "s-9_work.py"):
            archive.writestr(name, CODE)
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/assignments/{school.quick}/class")
    upload = {"name": "class.zip", "mimeType": "application/zip", "buffer": packed.getvalue()}
    page.get_by_label("ZIP file with all students' files").set_input_files([upload])
    page.get_by_role("button", name="Match files to students").click()
    expect(
        page.get_by_text("3 students in the ZIP file: 2 enrolled in this course, 1 not enrolled.")
    ).to_be_visible()
    look(page, pictures, "9-class")
    page.get_by_label("Submit s-9 for").select_option("create")
    page.get_by_role("button", name="Submit for these students").click()
    expect(page.get_by_text("Submitted for 3 students.")).to_be_visible()


def test_an_instructor_reads_the_exact_prompt(
    careful: Page, school: School, site: str, pictures: Path
) -> None:
    page = careful
    words = "\n  You review homework.\n\n<b>not bold</b> " + "long " * 300
    submission = school.submit("anna")
    school.grade(submission, report())
    school.ran(submission, "analysis", SentPrompt(system=words, user="\n+ 1| x = 1\n"), prompt_hash="0" * 64)
    come_in(page, site, school, "teacher")
    page.goto(f"{site}/submissions/{submission}")
    page.get_by_text("How this result was produced").click()
    page.get_by_role("link", name="the exact prompt of Technical review").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("What the model read")
    expect(page.get_by_role("alert")).to_contain_text("This differs from what the machine reported.")
    messages = page.locator("[data-message]").evaluate_all("all => all.map(one => one.textContent)")
    assert messages == [words, "\n+ 1| x = 1\n"]  # to the letter, line ends at both ends too
    look(page, pictures, "prompt")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
