"""Runs code that a student has checked before submitting it; the outcome goes to SQL."""

from __future__ import annotations

import logging

from grading.checks.precheck import PrecheckOutcome, precheck_outcome, visible_tests
from grading.documents import set_apart
from grading.domain.errors import SandboxUnavailable
from grading.execution.plan import make_plan
from grading.store.submissions import prechecks
from grading.store.submissions.prechecks import ClaimedPrecheck
from workers.sandbox.plan_runner import Runner
from workers.server.context import Server

log = logging.getLogger(__name__)


def run_precheck(server: Server, runner: Runner, precheck_id: str) -> None:
    """Run it once; nothing where somebody did, or where the student replaced it."""
    with server.store.write() as session:
        claimed = prechecks.claim_precheck(session, precheck_id)
    if claimed is None:
        return
    try:
        outcome = _outcome(server, runner, claimed)
    except SandboxUnavailable as error:
        log.warning("precheck %s could not be run: %s", precheck_id, error)
        outcome = PrecheckOutcome(unavailable=True)
    with server.store.write() as session:
        prechecks.save_outcome(session, precheck_id, outcome)


def _outcome(server: Server, runner: Runner, claimed: ClaimedPrecheck) -> PrecheckOutcome:
    with server.store.read() as session:
        version = server.versions.get(session, claimed.rubric_version_id)
    rubric, own = visible_tests(version.rubric), set_apart(claimed.documents, version.starter)
    plan = make_plan(
        own,
        rubric,
        version.solution,
        files=version.data,
        tests=version.tests,
        limits=server.config.sandbox.limits,
        starter=version.starter,
        language=version.language,
        packages=server.config.sandbox.packages,
    )
    return precheck_outcome(own, rubric, version.solution, plan, runner.run_unkept(plan))
