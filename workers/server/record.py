"""Recording results and combining a round into its report and grade."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy.exc import DataError, InterfaceError, InternalError, OperationalError
from sqlalchemy.orm import Session

from grading import scoring
from grading.domain.errors import EngineError, JobInvalid, OutputInvalid, for_student
from grading.domain.evidence import Evidence
from grading.domain.jobs import Provenance, Result, read_result
from grading.domain.report import Report
from grading.domain.stages import SECOND_OPINION
from grading.shared.telemetry import outcome, span, working_on
from grading.store.completion import finish_round
from grading.store.completion.finish_round import RoundEnd
from grading.store.rounds import lifecycle
from grading.store.rounds.lifecycle import Recorded
from grading.store.rounds.locking import LockedRound
from workers.server.context import Server
from workers.server.messages import NO_REPORT, NO_RESULT
from workers.server.pseudonyms import rename_documents
from workers.server.rubric_cache import DOCUMENTS
from workers.server.second_opinions import combine_opinion

log = logging.getLogger(__name__)
SQL_AWAY = (OperationalError, InterfaceError, InternalError)
"""The same may work later; data a database refuses will be refused again."""
REFUSED = (DataError, ValueError, OverflowError)
"""Numbers too large, NUL, half characters: what one database or the other does not take."""


def read(content: Any) -> Result | None:
    """What a machine sent; of another shape, it is a failed run, else that run would be begun for ever.

    None when it does not even say of which run it is.
    """
    try:
        return read_result(content)
    except ValidationError as error:
        # not its text, which repeats what a student wrote
        log.error(
            "a message was rejected: it is not a valid result, %d validation errors", error.error_count()
        )
    if not isinstance(content, Mapping):
        return None
    ids = {key: str(content.get(key)) for key in ("run_id", "round_id", "stage") if content.get(key)}
    how = content.get("provenance")
    machine = str(how.get("machine", ""))[:40] if isinstance(how, Mapping) else ""
    failed = _failed(JobInvalid(NO_RESULT))
    provenance = Provenance(machine=machine, engine="", model="")
    return Result.model_validate({**ids, **failed, "provenance": provenance}) if len(ids) == 3 else None


def record(server: Server, results: Sequence[Result]) -> list[Recorded]:
    """Write results down, and combine each round that waited for nothing else. Raises SQL_AWAY."""
    began_ns = time.time_ns()
    kept = [_without_output(one) if one.ok and not scoring.valid(one) else one for one in results]
    try:
        recorded = _together(server, kept) if kept else []
    except SQL_AWAY:
        raise
    except Exception as error:  # noqa: BLE001 - told, and each is tried by itself
        # not the error's text, which may repeat what a student wrote
        log.warning(
            "recording a batch of %d results failed, retrying them one by one: %s",
            len(kept),
            type(error).__name__,
        )
        recorded = [_alone(server, one) for one in kept]
    for result, one in zip(results, recorded, strict=True):
        _say(result, one, began_ns)
    return recorded


def _together(server: Server, results: Sequence[Result]) -> list[Recorded]:
    """In one transaction, which is waited for on disk where a grade may come of it."""
    last = server.halfway.completes([one.round_id for one in results])
    with server.store.write(derived=not last) as session:
        recorded = lifecycle.record_results(session, results)
        for one in recorded if last else ():
            _combine(server, session, one.complete)
    for one in () if last else recorded:
        # another process recorded the other stage, or this one did before it was started again
        if one.complete is not None:
            combine(server, one.complete.id)
    return recorded


def _alone(server: Server, result: Result) -> Recorded:
    """First what a machine answered, without what the database refuses; then the grade."""
    try:
        with server.store.write() as session:
            (recorded,) = lifecycle.record_results(session, [result])
    except REFUSED as error:
        # else it would be recovered and begun again for ever
        log.error("the database rejected the result of run %s: %s", result.run_id, type(error).__name__)
        with server.store.write() as session:
            (recorded,) = lifecycle.record_results(session, [_bare(_without_output(result))])
    if recorded.complete is not None:
        combine(server, recorded.complete.id)
    return recorded


def _say(result: Result, recorded: Recorded, began_ns: int) -> None:
    where = {"stage": result.stage, "machine": result.provenance.machine}
    with (
        working_on(round=result.round_id, run=result.run_id, **where),
        span("record", result.round_id, result.run_id, began_ns) as say,
    ):
        say({**outcome(result), "grader.recorded": recorded.outcome})
        log.info("run %s, %s: %s", result.run_id, result.stage, recorded.outcome)
        if recorded.outcome == "unknown":
            log.warning("a result was ignored: run %s was never dispatched", result.run_id)


def _without_output(result: Result) -> Result:
    return result.model_copy(update={**_failed(OutputInvalid()), "output": {}})


def _failed(error: EngineError) -> dict[str, Any]:
    """Fields of a result that is refused."""
    why = error.coded
    said = {"message": why.message, "message_code": why.code, "params": why.params}
    return {"ok": False, "error": error.code, **said}


def _bare(result: Result) -> Result:
    """What any database takes of a failed result."""
    machine = "".join(letter for letter in result.provenance.machine if letter.isprintable())
    return result.model_copy(
        update={"flags": (), "prompt": None, "provenance": Provenance(machine=machine, engine="", model="")}
    )


def combine(server: Server, round_id: str) -> bool:
    """Combine a round that is complete and was not combined. True when this call made the grade.

    A round that cannot be combined becomes dead. Raises SQL_AWAY.
    """
    try:
        with server.store.write() as session:
            return _combine(server, session, finish_round.lock_complete(session, round_id))
    except SQL_AWAY:
        raise
    except Exception:
        # else it would be tried again for ever
        log.exception("combining the results of round %s failed", round_id)
    with server.store.write() as session:
        if current := finish_round.lock_complete(session, round_id):
            if SECOND_OPINION in current.stages:
                combine_opinion(server, session, current, usable=False)
            else:
                finish_round.fail_round(session, current, NO_REPORT())
    return False


def _combine(server: Server, session: Session, current: LockedRound | None) -> bool:
    if current is None:
        return False
    if SECOND_OPINION in current.stages:
        combine_opinion(server, session, current)
        return True
    with working_on(submission=current.submission_id, round=current.id), span("combine", current.id) as say:
        say({"grader.submission": current.submission_id})
        end = finish_round.load_round_end(session, current.id)
        outcome = _outcome(server, session, current, end)
        release = end.by_itself and not outcome.held and not outcome.failures
        finish_round.finish_round(session, current, outcome, end, release=release)
        held = ", held for review" if outcome.held else ""
        log.info("round %s is %s%s", current.id, outcome.status, held)
    return True


def _outcome(server: Server, session: Session, current: LockedRound, end: RoundEnd) -> Report:
    """The report of a complete round."""
    version = server.versions.get(session, current.rubric_version_id)
    evidence = Evidence.model_validate(end.prepared["evidence"])
    results = {result.stage: result for result in finish_round.accepted_results(session, current.id)}
    # reports are read by students; staff find the operator's sentence at the stage
    failures = {stage: for_student(code) for stage, code in finish_round.dead_codes(current).items()}
    judged = DOCUMENTS.validate_python(end.prepared["documents"])
    combined = scoring.combine(version.rubric, evidence, results, failures, judged)
    return rename_documents(combined, end.prepared["paths"])
