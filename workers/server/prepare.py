"""From a stored submission to what its jobs carry: own work set apart, evidence, no names.

Where the rubric asks for the work to be run, the round goes to a sandbox worker by queue `sandbox`, which
does the same with the results of the run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import SerializerFunctionWrapHandler, ValidationError, model_serializer
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.orm import Session

from grading.checks import collect
from grading.checks.visibility import for_student
from grading.documents import Identity, pseudonymise, set_apart
from grading.domain.base_value import Value
from grading.domain.document import Document
from grading.domain.errors import FilesUnavailable, GraderError, SandboxUnavailable
from grading.domain.evidence import Evidence, Flag
from grading.execution.display import ShownExecution, add_played, shown
from grading.execution.path_repair import beside
from grading.execution.plan import Plan, make_plan
from grading.execution.results import Ran
from grading.execution.values import Execution
from grading.shared.telemetry import span, working_on
from grading.store.rounds import preparing
from workers.server.answers import answer_rows
from workers.server.context import Server
from workers.server.messages import CHECKS_FAILED
from workers.server.pseudonyms import hide_names
from workers.server.rubric_cache import DOCUMENTS, Version

log = logging.getLogger(__name__)
NO_SANDBOX = "This server runs no work: [sandbox] backend is none."
Run = Callable[[Plan, str], Mapping[str, Execution]]
"""Runs what a plan asks for; the string is the submission's id."""


class Prepared(Value):
    """A round made ready: what machines get, without names, and the evidence as reports show it."""

    documents: tuple[Document, ...]
    """Without names; also in paths."""
    hidden_evidence: Evidence
    """Without names, and without what students may not see of the tests."""
    evidence: Evidence
    paths: dict[str, str]
    """The path a document is sent under -> its own."""
    execution: ShownExecution | None = None
    """What running the work showed, for people."""

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        if content.get("execution") is None:
            content.pop("execution", None)
        return content


@dataclass(frozen=True)
class ReceivedSubmission:
    """A received round and all that decides its evidence."""

    round_id: str
    submission_id: str
    priority: str
    version: Version
    documents: tuple[Document, ...]
    identity: Identity
    files: Mapping[str, str]
    """Path -> SHA-256 of what was submitted."""

    @cached_property
    def own(self) -> tuple[Document, ...]:
        """The documents with the student's own lines marked."""
        return set_apart(self.documents, self.version.starter)

    def plan(self, server: Server) -> Plan:
        """What must be run for the rubric's checks."""
        version = self.version
        return make_plan(
            self.own,
            version.rubric,
            version.solution,
            files=beside(self.files, version.data),
            tests=version.tests,
            limits=server.config.sandbox.limits,
            starter=version.starter,
            language=version.language,
            packages=server.config.sandbox.packages,
        )


@dataclass(frozen=True)
class _Content:
    """What is stored of a prepared round: the JSON of all its jobs, and its answers to criteria."""

    prepared: dict[str, Any]
    answers: list[dict[str, Any]]


class _ChecksFailed(Exception):
    """The checks raised what they should not."""


def prepare(server: Server, round_id: str, without: str = "") -> bool:
    """Compute the evidence of a received round and queue it. False when there was nothing to do.

    A round whose work must be run is handed on instead (False); `without` says why nothing is run.
    Whatever cannot be prepared ends the round: the checks give the same each time they look.
    """

    def prepared(received: ReceivedSubmission) -> Prepared | None:
        plan = received.plan(server)
        reason = without or (NO_SANDBOX if server.config.sandbox.backend == "none" else "")
        if plan.requests and not reason:
            return None
        nothing = Execution(end="not run", reason=reason)
        held = (Flag(code="not_run", message=without, hold=True),) if without else ()
        return make_ready(received, plan, dict.fromkeys(plan.requests, nothing), held)

    return _ending_badly(server, round_id, prepared)


def prepare_by_running(server: Server, round_id: str, run: Run) -> bool:
    """The same in the pool that runs work; the round is not handed on again.

    Raises SandboxUnavailable when nothing can be run just now; then nothing has changed.
    """

    def prepared(received: ReceivedSubmission) -> Prepared:
        plan = received.plan(server)
        return make_ready(received, plan, run(plan, received.submission_id))

    return _ending_badly(server, round_id, prepared)


def _ending_badly(
    server: Server, round_id: str, prepared: Callable[[ReceivedSubmission], Prepared | None]
) -> bool:
    """Store what `prepared` makes of a round, or end it with a sentence. Raises what databases raise."""
    with working_on(round=round_id), span("prepare", round_id):
        with server.store.read_autocommit() as session:
            received = _load(server, session, round_id)
        if received is None:
            return False
        try:
            content = _as_json(received, prepared)
            if content is None:
                return _hand_on(server, received)
            with server.store.write(derived=True) as session:
                done = preparing.save_prepared(
                    session, round_id, content.prepared, received.version.assignment_id, content.answers
                )
            if done:
                log.info("round %s is queued", round_id)
            return done
        except (SandboxUnavailable, FilesUnavailable):
            raise
        except GraderError as error:
            why = error.coded
        except (_ChecksFailed, ValidationError, DataError):
            log.exception("preparing round %s failed", round_id)
            why = CHECKS_FAILED()
        with server.store.write() as session:
            preparing.reject_round(session, round_id, why)
        return False


def _as_json(
    received: ReceivedSubmission, prepared: Callable[[ReceivedSubmission], Prepared | None]
) -> _Content | None:
    try:
        made = prepared(received)
        if made is None:
            return None
        return _Content(made.model_dump(mode="json"), _answers(received, made))
    except (GraderError, DBAPIError):
        raise
    except Exception as error:  # one submission must not stop the sweeper, nor wait for ever
        raise _ChecksFailed from error


def _answers(received: ReceivedSubmission, made: Prepared) -> list[dict[str, Any]]:
    version, shown_too = received.version, add_played(received.own, made.execution)
    return answer_rows(shown_too, version.rubric, version.tests.values(), made.evidence)


def _hand_on(server: Server, received: ReceivedSubmission) -> bool:
    with server.store.write() as session:
        handed_on = preparing.hand_on(session, received.round_id)
    if handed_on:
        server.dispatch.announce_execution(received.round_id, received.priority)
        log.info("round %s was sent to the sandbox queue", received.round_id)
    return False


def make_ready(
    received: ReceivedSubmission,
    plan: Plan,
    executions: Mapping[str, Execution],
    flags: tuple[Flag, ...] = (),
) -> Prepared:
    """Evidence, and documents without names, from what running the work showed; with further flags."""
    version, own = received.version, received.own
    evidence = collect(own, version.rubric, version.solution, Ran(plan, executions))
    own_words = {flag.code for flag in flags}
    others = [flag for flag in evidence.flags if flag.code not in own_words]
    evidence = evidence.model_copy(update={"flags": (*others, *flags)})
    execution = shown(plan, executions) if plan.requests else None
    sent = pseudonymise(add_played(own, execution), received.identity)
    names = {mine.path: other.path for mine, other in zip(own, sent, strict=True)}
    # adjustments rest on checks alone: machines do not get them
    judged = for_student(evidence.model_copy(update={"adjustments": ()}))
    return Prepared(
        documents=sent,
        hidden_evidence=hide_names(judged, received.identity, names),
        evidence=evidence,
        paths={other: mine for mine, other in names.items()},
        execution=execution,
    )


def _load(server: Server, session: Session, round_id: str) -> ReceivedSubmission | None:
    found = preparing.load_received(session, round_id)
    if found is None:
        return None
    return ReceivedSubmission(
        round_id=round_id,
        submission_id=found.submission_id,
        priority=found.priority,
        version=server.versions.get(session, found.rubric_version_id),
        documents=DOCUMENTS.validate_python(found.documents),
        identity=identity_of(found.name, found.email, found.subjects),
        files=found.files,
    )


def identity_of(name: str, email: str, subjects: Sequence[str]) -> Identity:
    """The names, ids and addresses that must not leave the server."""
    return Identity(
        names=(name,) if name else (),
        ids=tuple(s for s in subjects if "@" not in s),
        emails=tuple(e for e in (email, *(s for s in subjects if "@" in s)) if e),
    )
