"""Every error a person or a caller can meet, one docstring sentence each.

`code` is stable and travels in results, problem details and SQL; the message is for people and says
what to do about it.
"""

from __future__ import annotations

from typing import Literal

Retry = Literal["elsewhere", "later", "never"]
"""What may help after a failure: another machine, a while, or nothing."""


class GraderError(Exception):
    """Something Grader refuses or cannot do, said in one plain sentence."""

    code = "error"
    status = 400

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or self.code))

    @property
    def message(self) -> str:
        """The sentence for people."""
        return str(self)


class ConfigError(GraderError):
    """A key of config.toml is missing or has a value that is not allowed."""

    code = "config_invalid"


class DocumentError(GraderError):
    """The hand-in cannot be read."""

    code = "document_unreadable"
    status = 422


class UploadTooLarge(DocumentError):
    """The upload is larger than this server accepts."""

    code = "upload_too_large"
    status = 413


class ArchiveRefused(DocumentError):
    """The zip file is not safe to open."""

    code = "archive_refused"


class UnsupportedFile(DocumentError):
    """This kind of file cannot be graded."""

    code = "unsupported_file"
    status = 415


class EmptyUpload(DocumentError):
    """The upload has nothing in it."""

    code = "upload_empty"


class AssignmentError(GraderError):
    """The assignment folder or rubric contradicts itself or lacks something."""

    code = "assignment_invalid"
    status = 422


class NotFound(GraderError):
    """There is nothing here under that name."""

    code = "not_found"
    status = 404


class Forbidden(GraderError):
    """You are not allowed to do this."""

    code = "forbidden"
    status = 403


class NotSignedIn(GraderError):
    """Sign in or send a valid token first."""

    code = "not_signed_in"
    status = 401


class SignatureInvalid(GraderError):
    """The message's signature, time or id could not be verified."""

    code = "signature_invalid"
    status = 401


class Conflict(GraderError):
    """This was already done with other content."""

    code = "conflict"
    status = 409


class SandboxUnavailable(GraderError):
    """Nothing can be run in a sandbox here now; nobody's work is to blame."""

    status = 503
    code = "sandbox_unavailable"


class EngineError(GraderError):
    """The engine did not give a usable answer."""

    code = "engine_failed"
    retry: Retry = "elsewhere"
    """What may help."""
    student = "A fault stopped the computer that was working on this part."
    """What happened, for the student: without names, addresses and jargon."""


class EngineUnreachable(EngineError):
    """The engine refused the connection or did not answer within 5 s."""

    code = "engine_unreachable"
    student = "The computer that should work on this part could not be reached."
    refused = False
    """No connection was made at all: so it is for everyone, whatever was asked."""


class EngineBusy(EngineError):
    """The engine's own queue is full."""

    code = "engine_busy"
    retry: Retry = "later"
    student = "The computers that work on this part had too much to do."


class ModelMissing(EngineError):
    """The model is not present on the machine."""

    code = "model_missing"
    student = "The computer that should work on this part was not fully set up."


class EngineStalled(EngineError):
    """The engine sent nothing for longer than it may."""

    code = "engine_stalled"
    student = "The computer that was working on this part stopped responding."


class EngineBrokeOff(EngineError):
    """The engine began to answer and ended before the answer was complete."""

    code = "engine_broke_off"
    student = "The computer that was working on this part stopped before it was done."


class EngineGarbled(EngineError):
    """What answered does not speak the engine's protocol."""

    code = "engine_garbled"
    student = "The computer that should work on this part gave an answer that could not be read."


class BudgetExceeded(EngineError):
    """The stage did not finish within its time budget."""

    code = "budget_exceeded"
    student = "This part took longer than it may."


class OutputTruncated(EngineError):
    """The model reached its token limit before the answer was complete."""

    code = "output_truncated"
    retry: Retry = "later"
    student = "What was written about this part became too long and broke off."


class OutputEmpty(EngineError):
    """The model finished without writing anything."""

    code = "output_empty"
    student = "Nothing was written about this part."


class OutputEndless(EngineError):
    """The model wrote far more than it was allowed to, or nothing but blanks without end."""

    code = "output_endless"
    student = "What was written about this part came to no end."


class OutputInvalid(EngineError):
    """The model's answer does not follow the schema, also after one repair try."""

    code = "output_invalid"
    student = "What was written about this part did not make sense, so it was not used."


class JobInvalid(EngineError):
    """The job cannot be done by any machine as it is."""

    code = "job_invalid"
    retry: Retry = "never"
    student = "This part of your hand-in cannot be graded automatically as it is."


class Cancelled(EngineError):
    """Nobody waits for this run any more, so it was not finished."""

    code = "cancelled"
    student = "The work on this part was called off before it was done."


class MachineLost(EngineError):
    """The machine that did this run no longer answers."""

    code = "machine_lost"
    student = "The computer that was working on this part went off."


class MachineStalled(EngineError):
    """The machine is alive but this run made no progress for longer than it may."""

    code = "machine_stalled"
    student = "The computer that was working on this part got stuck."


class Exhausted(EngineError):
    """The work was begun as often as it may be and never came to an end."""

    code = "exhausted"
    retry: Retry = "never"
    student = "This part was begun several times and never came to an end."


_AGAIN = "Your work is safe, and a person can have this part graded again; you do not need to do anything."
_PERSON = "Your work is safe, and a person will look at this part; you do not need to do anything."


def model_faults() -> dict[str, type[EngineError]]:
    """Every way a stage can fail, by code."""
    found: dict[str, type[EngineError]] = {}
    kinds: list[type[EngineError]] = [EngineError]
    while kinds:
        kind = kinds.pop(0)
        found.setdefault(kind.code, kind)
        kinds += kind.__subclasses__()
    return found


def for_student(code: str) -> str:
    """What a student reads about a stage that failed with this code; also for codes nobody knows."""
    kind = model_faults().get(code, EngineError)
    return f"{kind.student} {_PERSON if kind.retry == 'never' else _AGAIN}"
