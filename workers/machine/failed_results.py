"""Results of runs that no engine worked on."""

from __future__ import annotations

from grading.domain.errors import EngineError, JobInvalid
from grading.domain.jobs import Job, Provenance, Result

EXHAUSTED = "This work was begun three times and never came to an end; it is not begun again."
NOT_HERE = (
    "The machine that got this work does not do this stage; its configuration differs from the server's."
)
OTHER_VERSION = (
    "The machine that got this work does not understand it; it runs another version than the server."
)


def exhausted(job: Job, provenance: Provenance) -> Result:
    """The failure of a job that was begun too often, for good."""
    failure = failed(job.run_id, job.round_id, job.stage, provenance, EngineError(EXHAUSTED))
    return failure.model_copy(update={"error": "exhausted", "retry": "never"})


def not_here(job: Job, provenance: Provenance) -> Result:
    """The failure of a job whose stage this machine does not do."""
    return failed(job.run_id, job.round_id, job.stage, provenance, JobInvalid(NOT_HERE))


def not_understood(run_id: str, round_id: str, stage: str, provenance: Provenance) -> Result:
    """The failure of a run whose job this version cannot read."""
    return failed(run_id, round_id, stage, provenance, JobInvalid(OTHER_VERSION))


def failed(run_id: str, round_id: str, stage: str, provenance: Provenance, error: EngineError) -> Result:
    """A failure that another machine, or this one later, may not have."""
    return Result(
        run_id=run_id,
        round_id=round_id,
        stage=stage,
        ok=False,
        error=error.code,
        message=error.message,
        provenance=provenance,
    )
