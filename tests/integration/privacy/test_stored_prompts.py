"""The exact prompt of a run: kept with its result, shown to staff, gone with the submission."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from grading.config.settings import Retention, StageSettings
from grading.domain.errors import NotFound
from grading.domain.jobs import Job, Result, SentPrompt
from grading.store import schema
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.privacy import erasure, export, retention
from grading.store.privacy.erasure import find_student
from grading.store.rounds import prompts
from grading.store.tables import Prompt, Round, Run, SystemMessage
from tests.support.aging import DAY_S, Fresh, Played, played
from tests.support.factories import COURSE, RUBRIC, add_assignment, result, submit
from tests.support.marked_student import CANARY, hits
from workers.machine.engines.rules.engine import RulesEngine
from workers.machine.stages.run import run_stage
from workers.server import record as finish

SHARED = "You review homework.\nThe task: ünder 5 < 6 & more"
OWN = "<<<5eed\n+ 1| x <- 1\n5eed>>>"


@pytest.fixture
def system(fresh_database: Fresh, redis_url: str, root: Path) -> Iterator[Played]:
    with played(fresh_database(schema.upgrade), redis_url, root) as made:
        yield made


def sent(own: str = OWN, shared: str = SHARED) -> SentPrompt:
    return SentPrompt(system=shared, user=own)


def hashed(prompt: SentPrompt) -> str:
    return hashlib.sha256(f"{prompt.system}\0{prompt.user}".encode()).hexdigest()


def answered(job: dict[str, Any], prompt: SentPrompt | None, **other: Any) -> Result:
    """A machine's answer to a job, with what its model was sent."""
    plain = result(job["run_id"], job["round_id"], job["stage"], **other)
    known = (
        plain.provenance.model_copy(update={"prompt_hash": hashed(prompt)}) if prompt else plain.provenance
    )
    return plain.model_copy(update={"prompt": prompt, "provenance": known})


def jobs(system: Played) -> list[dict[str, Any]]:
    system.pass_time()
    system.heartbeat()
    system.sweeper.step()
    return list(system.messages())


def rows(system: Played) -> tuple[int, int]:
    """System messages and prompts that are kept."""
    with system.store.read() as session:
        counts = [
            session.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (SystemMessage, Prompt)
        ]
    return counts[0], counts[1]


def seen(system: Played, submission_id: str, run_id: str) -> prompts.RunPrompt:
    with system.store.read() as session:
        return prompts.load_run_prompt(session, submission_id, run_id)


def graded(system: Played, *students: str, own: str = OWN) -> list[tuple[str, dict[str, Any]]]:
    """Submissions that were graded by models which were sent prompts: (submission, job) of each run."""
    assignment = add_assignment(system.store, release="at_once")
    made = {
        one.round_id: one.submission_id for one in (submit(system.store, assignment, s) for s in students)
    }
    found = []
    for job in jobs(system):
        prompt = sent(f"{own} of {job['run_id']}", f"{SHARED} {job['stage']}")
        assert finish.record(system.server, [answered(job, prompt)])[0].outcome == "accepted"
        found.append((made[job["round_id"]], job))
    system.work_off()
    return found


# --- keeping ------------------------------------------------------------------------------------------


def test_what_a_class_shares_is_kept_once_and_read_back_to_the_letter(system: Played) -> None:
    runs = graded(system, "ada", "ben")
    assert rows(system) == (2, 4)
    for submission_id, job in runs:
        run = seen(system, submission_id, job["run_id"])
        assert run.prompt == sent(f"{OWN} of {job['run_id']}", f"{SHARED} {job['stage']}")
        assert (run.intact, run.missing, run.accepted) == (True, None, True)
        assert (run.stage, run.attempt, run.round_number) == (job["stage"], 1, 1)
    with system.store.read() as session:
        stored = [run for run in session.scalars(select(Run.result)) if run]
        assert len(stored) == 4
        assert not [one for one in stored if "prompt" in one or SHARED[:20] in json.dumps(one)]
        # and all that reads results still does
        assert {state for (state,) in session.execute(select(Round.state))} == {"graded"}
    one, other = runs[0], next(run for run in runs if run[0] != runs[0][0])
    for submission_id, run_id in ((other[0], one[1]["run_id"]), (one[0], "0" * 32), (one[0], "../x")):
        with pytest.raises(NotFound):
            seen(system, submission_id, run_id)


def test_what_a_machine_sends_along_is_what_is_kept(system: Played) -> None:
    assignment = add_assignment(system.store)
    submissions = {
        one.round_id: one.submission_id
        for one in (
            submit(system.store, assignment, name, source_text=f"{name} <- 1") for name in ("a1", "b2")
        )
    }
    for job in jobs(system):
        made = run_stage(Job.model_validate(job), RulesEngine(), "rules", "m", lambda *_: None)
        assert finish.record(system.server, [made])[0].outcome == "accepted"
        run = seen(system, submissions[job["round_id"]], job["run_id"])
        assert (run.prompt, run.intact) == (made.prompt, True)
        assert run.prompt is not None
        assert ("a1 <- 1" in run.prompt.user) != ("b2 <- 1" in run.prompt.user)
        assert "<- 1" not in run.prompt.system
    assert rows(system) == (2, 4)


def test_the_prompt_of_the_first_result_stays(system: Played) -> None:
    accepted = submit(system.store, add_assignment(system.store), "ada")
    job = jobs(system)[0]
    whole = answered(job, sent())
    assert finish.record(system.server, [whole])[0].outcome == "accepted"
    other = whole.model_copy(update={"prompt": sent("another")})
    assert finish.record(system.server, [other])[0].outcome == "duplicate"
    run = seen(system, accepted.submission_id, job["run_id"])
    assert (run.prompt, run.intact) == (sent(), True)


def test_a_failed_run_keeps_its_prompt_and_says_when_it_had_none(system: Played) -> None:
    accepted = submit(system.store, add_assignment(system.store), "ada")
    first, second = jobs(system)
    assert seen(system, accepted.submission_id, first["run_id"]).missing == "not over"
    finish.record(system.server, [answered(first, sent(), ok=False)])
    assert seen(system, accepted.submission_id, first["run_id"]).prompt == sent()
    finish.record(system.server, [answered(second, None, ok=False)])
    assert seen(system, accepted.submission_id, second["run_id"]).missing == "no prompt"
    with system.store.write() as session:
        session.execute(update(Run).where(Run.id == second["run_id"]).values(state="lost", result=None))
    assert seen(system, accepted.submission_id, second["run_id"]).missing == "lost"


def test_a_prompt_that_cannot_be_kept_costs_no_result(
    system: Played, caplog: pytest.LogCaptureFixture
) -> None:
    accepted = submit(system.store, add_assignment(system.store), "ada")
    large, odd = jobs(system)
    half = prompts.MOST_BYTES // 2
    with caplog.at_level(logging.WARNING):
        whole = answered(large, sent("é" * (half // 2 + 1), "x" * half))
        assert finish.record(system.server, [whole])[0].outcome == "accepted"
        assert f"the prompt of run {large['run_id']} is not stored" in caplog.text
        none = answered(odd, None).model_copy(update={"prompt": sent("half a letter \ud800")})
        assert finish.record(system.server, [none])[0].outcome == "accepted"
        assert f"the prompt of run {odd['run_id']} is not stored: it is not text" in caplog.text
    assert "half a letter" not in caplog.text
    run = seen(system, accepted.submission_id, large["run_id"])
    assert (run.missing, run.prompt, run.intact) == ("too large", None, None)
    assert seen(system, accepted.submission_id, odd["run_id"]).prompt is None
    # as large as may be, with a letter that PostgreSQL takes in no text
    accepted = submit(system.store, add_assignment(system.store, "basket"), "ada")
    full = sent("\0" * half, "x" * half)
    job = jobs(system)[0]
    assert finish.record(system.server, [answered(job, full)])[0].outcome == "accepted"
    assert seen(system, accepted.submission_id, job["run_id"]).prompt == full


def test_a_prompt_that_is_no_prompt_is_a_failed_run(system: Played) -> None:
    submit(system.store, add_assignment(system.store), "ada")
    job = jobs(system)[0]
    read = finish.read({**answered(job, sent()).model_dump(mode="json"), "prompt": {"system": 1}})
    assert read is not None
    assert (read.ok, read.prompt) == (False, None)


# --- going --------------------------------------------------------------------------------------------


def test_erasing_takes_what_was_read_of_the_student_and_leaves_the_others(system: Played) -> None:
    runs = graded(system, "ada", "ben", own=CANARY)
    assert hits(system.store) == {"prompts": 4}
    with system.store.write() as session:
        student = find_student(session, "ada")
        counts = erasure.erase_student(session, student, "test").counts
        assert (counts["submissions"], counts["prompts"]) == (1, 2)
    assert rows(system) == (2, 2)
    for submission_id, job in runs:
        if submission_id not in student.submissions:
            assert seen(system, submission_id, job["run_id"]).intact
    with system.store.write() as session:
        assert not retention.delete_chunk(session, Retention())  # the other student's runs need them
        erasure.erase_student(session, find_student(session, "ben"), "test")
    assert rows(system) == (2, 0)
    assert hits(system.store) == {}
    with system.store.write() as session:
        assert retention.count_overdue(session, Retention())["system messages"] == 2
        assert retention.delete_chunk(session, Retention()) == {"system messages": 2}
    assert rows(system) == (0, 0)


def test_prompts_go_with_the_results(system: Played) -> None:
    submission_id, job = graded(system, "ada")[0]
    system.pass_time(40 * DAY_S)
    with system.store.write() as session:
        removed = retention.delete_chunk(session, Retention(results_days=30))
        assert removed == {"results": 1, "system messages": 2, "outbox": 1}
    assert rows(system) == (0, 0)
    run = seen(system, submission_id, job["run_id"])
    assert run.missing == "removed"
    assert run.provenance is not None  # how the result came about is still known
    system.pass_time(400 * DAY_S)
    with system.store.write() as session:
        assert retention.delete_chunk(session, Retention(submissions_days=365))["submissions"] == 1


def test_a_student_gets_their_own_part_of_the_prompts(system: Played) -> None:
    runs = [job for _, job in graded(system, "ada", "ben")]
    first = runs[0]
    other = next(job for job in runs if job["round_id"] != first["round_id"])
    with system.store.read() as session:
        student = find_student(session, f"user:{session.get_one(Round, first['round_id']).student_id}")
    buffer = io.BytesIO()
    counts = export.write_export(system.store, student, buffer, "test")
    assert counts["prompts"] == 2
    with zipfile.ZipFile(buffer) as archive:
        data = json.loads(archive.read("data.json"))
    texts = [row["user_message"] for row in data["prompts"]]
    assert f"{OWN} of {first['run_id']}" in texts
    whole = json.dumps(data)
    assert SHARED[:20] not in whole
    assert other["run_id"] not in whole


def test_a_message_that_is_used_again_while_it_is_removed_stays_whole(system: Played) -> None:
    """Whoever comes first: no result fails, and no prompt loses its other half."""
    submit(system.store, add_assignment(system.store), "ada")
    job = jobs(system)[0]
    name = hashlib.sha256(SHARED.encode()).hexdigest()
    with system.store.write() as session:
        prompts._keep_system(session, name, SHARED.encode())
    outcome: list[Any] = []

    def record() -> None:
        outcome.append(finish.record(system.server, [answered(job, sent())])[0].outcome)

    with system.store.write() as session:
        assert prompts.delete_unused_messages(session, [name]) == 1
        begun = waiting_for(record)
    begun.join(30)
    assert outcome == ["accepted"]
    assert rows(system) == (1, 1)

    def remove() -> None:
        with system.store.write() as session:
            outcome.append(prompts.delete_unused_messages(session, [name]))

    with system.store.write() as session:
        session.execute(Prompt.__table__.delete())  # type: ignore[attr-defined]
    with system.store.write() as session:
        prompts.store_prompt(session, answered(job, sent()))
        begun = waiting_for(remove)
    begun.join(30)
    assert outcome == ["accepted", 0]
    assert rows(system) == (1, 1)


def waiting_for(do: Callable[[], None]) -> threading.Thread:
    """A thread that must wait for what this one does."""
    thread = threading.Thread(target=do)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    return thread


# --- settings into jobs -------------------------------------------------------------------------------

OLD_JOB = {
    "run_id", "round_id", "stage", "attempt", "material", "rubric", "documents", "evidence", "nonce",
    "budget_s", "max_output_tokens", "temperature",
}  # fmt: skip
"""What machines of version 0.1 know of a job; they refuse one with any other field."""
OLD_MATERIAL = {"title", "task", "instructions", "starter", "solution"}


def test_settings_reach_jobs_and_without_them_jobs_are_what_old_machines_take(system: Played) -> None:
    submit(system.store, add_assignment(system.store), "ada")
    for job in jobs(system):
        assert set(job) == OLD_JOB | {"secret"}  # which proves that a result is one of this job
        assert set(job["material"]) == OLD_MATERIAL
        assert set(Job.model_validate(job).model_dump(mode="json")) - OLD_JOB == {"avoid", "alone", "secret"}
        finish.record(system.server, [answered(job, None)])
    stages = {"analysis": StageSettings(top_p=0.9, seed=7, temperature=0), "feedback": StageSettings()}
    config = system.server.config.model_copy(update={"stages": stages})
    object.__setattr__(system.server, "config", config)
    new = NewVersion("rhein", "Rhein", "r", "at_once", digest="1", rubric=RUBRIC)
    with system.store.write() as session:
        spoken = replace(new, spoken_language="German", show_draft=True)
        assignment, version, _ = versions.import_version(session, COURSE, spoken)
        assert (version.spoken_language, version.show_draft) == ("German", True)
    submit(system.store, assignment.id, "ada")
    made = {job["stage"]: Job.model_validate(job) for job in jobs(system)}
    analysis, feedback = made["analysis"], made["feedback"]
    assert (analysis.top_p, analysis.seed, analysis.temperature) == (0.9, 7, 0)
    assert (feedback.top_p, feedback.seed) == (None, None)
    assert {job.material.language for job in made.values()} == {"German"}
    assert all(job.draft for job in made.values())
    # a version keeps its own settings
    with system.store.write() as session:
        _, second, added = versions.import_version(session, COURSE, replace(new, digest="2"))
        assert (second.spoken_language, second.show_draft, added) == ("English", False, True)
        assert (version.spoken_language, version.show_draft) == ("German", True)
