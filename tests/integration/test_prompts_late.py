"""Prompts that come when their run is over: only that of the result which is kept, and not after its time."""

from __future__ import annotations

from grading.config import Retention
from grading.store import retention
from tests.factories import add_assignment, hand_in
from tests.integration.test_prompts_kept import answered, graded, jobs, rows, seen, sent, system
from tests.years import DAY_S, Played
from workers.server import finish

__all__ = ["system"]


def test_a_second_answer_leaves_no_prompt_beside_the_first_ones_account(system: Played) -> None:
    """A Redis that forgot has a run done twice: the first failed before it had a prompt."""
    accepted = hand_in(system.store, add_assignment(system.store), "ada")
    job = jobs(system)[0]
    assert finish.record(system.server, answered(job, None, ok=False)).outcome == "failed"
    assert finish.record(system.server, answered(job, sent())).outcome == "duplicate"
    run = seen(system, accepted.submission_id, job["run_id"])
    assert (run.missing, run.intact) == ("no prompt", None)
    assert rows(system) == (0, 0)


def test_what_retention_took_does_not_come_back(system: Played) -> None:
    submission_id, job = graded(system, "ada")[0]
    system.pass_time(40 * DAY_S)
    with system.store.write() as session:
        retention.remove_some(session, Retention(results_days=30))
    assert finish.record(system.server, answered(job, sent())).outcome == "duplicate"
    assert rows(system) == (0, 0)
    assert seen(system, submission_id, job["run_id"]).missing == "removed"
