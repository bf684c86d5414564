"""Every error a person or a caller can meet, one docstring sentence each.

`code` is stable and travels in results, problem details and SQL. The coded message is for people: it says
which sentence it is, and renders in their language.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from grading.domain.messages import Message, MessageType, define_message, verbatim

AT_PLACE = define_message("error.at_place", "%(place)s: %(problem)s")
Retry = Literal["elsewhere", "later", "never"]
"""What may help after a failure: another machine, a while, or nothing."""


class GraderError(Exception):
    """Grader refused this request or could not complete it."""

    code = "error"
    status = 400
    default_message: ClassVar[MessageType] = define_message(
        "error.grader_error", "Grader refused this request or could not complete it."
    )
    """What is said where nothing else is; subclasses declare their own."""

    def __init__(self, message: Message | MessageType | str | None = None) -> None:
        """A string is a sentence that nobody translates, such as one for operators."""
        self.coded = _coded(message or self.default_message)
        super().__init__(self.coded.message)

    @property
    def message(self) -> str:
        """The sentence in English."""
        return self.coded.message


def _coded(message: Message | MessageType | str) -> Message:
    if isinstance(message, Message):
        return message
    return verbatim(message) if isinstance(message, str) else message()


class ConfigError(GraderError):
    """A key of config.toml is missing or has a value that is not allowed."""

    code = "config_invalid"
    default_message = define_message(
        "error.config_error", "A key of config.toml is missing or has a value that is not allowed."
    )


class DocumentError(GraderError):
    """The submission cannot be read."""

    code = "document_unreadable"
    status = 422
    default_message = define_message("error.document_error", "The submission cannot be read.")


class UploadTooLarge(DocumentError):
    """The upload is larger than this server accepts."""

    code = "upload_too_large"
    status = 413
    default_message = define_message(
        "error.upload_too_large", "The upload is larger than this server accepts."
    )


class ArchiveRefused(DocumentError):
    """The ZIP file is not safe to open."""

    code = "archive_refused"
    default_message = define_message("error.archive_refused", "The ZIP file is not safe to open.")


class UnsupportedFile(DocumentError):
    """This kind of file cannot be graded."""

    code = "unsupported_file"
    status = 415
    default_message = define_message("error.unsupported_file", "This kind of file cannot be graded.")


class EmptyUpload(DocumentError):
    """The upload is empty."""

    code = "upload_empty"
    default_message = define_message("error.empty_upload", "The upload is empty.")


class AssignmentError(GraderError):
    """The assignment folder or the rubric is incomplete or contradicts itself."""

    code = "assignment_invalid"
    status = 422
    default_message = define_message(
        "error.assignment_error", "The assignment folder or the rubric is incomplete or contradicts itself."
    )

    def __init__(self, message: Message | MessageType | str | None = None, at: str = "") -> None:
        """`at` is the key or file that is wrong, if it is one."""
        super().__init__(message)
        self.at = at
        self.problem = self.coded
        """What is wrong there."""
        if at:
            self.coded = AT_PLACE(place=at, problem=self.problem)
            self.args = (self.coded.message,)


class NotFound(GraderError):
    """Not found."""

    code = "not_found"
    status = 404
    default_message = define_message("error.not_found", "Not found.")


class Forbidden(GraderError):
    """You are not allowed to do this."""

    code = "forbidden"
    status = 403
    default_message = define_message("error.forbidden", "You are not allowed to do this.")


class CannotUndo(GraderError):
    """This can no longer be undone, because it was changed in the meantime."""

    code = "cannot_undo"
    status = 409
    default_message = define_message(
        "error.cannot_undo", "This can no longer be undone, because it was changed in the meantime."
    )


class NotSignedIn(GraderError):
    """Sign in or send a valid token first."""

    code = "not_signed_in"
    status = 401
    default_message = define_message("error.not_signed_in", "Sign in or send a valid token first.")


class SignatureInvalid(GraderError):
    """The message's signature, time or ID could not be verified."""

    code = "signature_invalid"
    status = 401
    default_message = define_message(
        "error.signature_invalid", "The message's signature, time or ID could not be verified."
    )


class Conflict(GraderError):
    """The same request was already sent with different content."""

    code = "conflict"
    status = 409
    default_message = define_message(
        "error.conflict", "The same request was already sent with different content."
    )


class SandboxUnavailable(GraderError):
    """No sandbox is available now. This is not caused by the submission."""

    status = 503
    code = "sandbox_unavailable"
    default_message = define_message(
        "error.sandbox_unavailable", "No sandbox is available now. This is not caused by the submission."
    )


class FilesUnavailable(GraderError):
    """The store of large files does not answer. Nothing was lost. Try again in a minute."""

    status = 503
    code = "files_unavailable"
    default_message = define_message(
        "error.files_unavailable",
        "The store of large files does not answer. Nothing was lost. Try again in a minute.",
    )


class FileDamaged(GraderError):
    """This file is missing or damaged in the store of large files. Tell your administrator."""

    status = 500
    code = "file_damaged"
    default_message = define_message(
        "error.file_damaged",
        "This file is missing or damaged in the store of large files. Tell your administrator.",
    )


class EngineError(GraderError):
    """The engine did not give a usable answer."""

    code = "engine_failed"
    default_message = define_message("error.engine_error", "The engine did not give a usable answer.")
    retry: Retry = "elsewhere"
    """What may help."""
    student = define_message(
        "student.engine_failed", "An error stopped the computer that was grading this part."
    )
    """What happened, for the student: without names, addresses and jargon."""
    of_requests = False
    """Only gateway requests end with it, no run of a stage."""


class EngineUnreachable(EngineError):
    """The engine refused the connection or did not answer within 5 s."""

    code = "engine_unreachable"
    default_message = define_message(
        "error.engine_unreachable", "The engine refused the connection or did not answer within 5 s."
    )
    student = define_message(
        "student.engine_unreachable", "The computer that should grade this part could not be reached."
    )
    refused = False
    """No connection was made at all: so it is for everyone, whatever was asked."""


class EngineBusy(EngineError):
    """The queue of the engine is full."""

    code = "engine_busy"
    default_message = define_message("error.engine_busy", "The queue of the engine is full.")
    retry: Retry = "later"
    student = define_message("student.engine_busy", "The computers that grade this part were overloaded.")


class ModelMissing(EngineError):
    """The model is not installed on the machine."""

    code = "model_missing"
    default_message = define_message("error.model_missing", "The model is not installed on the machine.")
    student = define_message(
        "student.model_missing", "The computer that should grade this part was not set up completely."
    )


class EngineStalled(EngineError):
    """The engine timed out: it sent nothing for longer than its time limit."""

    code = "engine_stalled"
    default_message = define_message(
        "error.engine_stalled", "The engine timed out: it sent nothing for longer than its time limit."
    )
    student = define_message(
        "student.engine_stalled", "The computer that was grading this part stopped responding."
    )


class EngineBrokeOff(EngineError):
    """The engine stopped before its answer was complete."""

    code = "engine_broke_off"
    default_message = define_message(
        "error.engine_broke_off", "The engine stopped before its answer was complete."
    )
    student = define_message(
        "student.engine_broke_off", "The computer that was grading this part stopped before it finished."
    )


class EngineGarbled(EngineError):
    """The answer does not follow the engine's protocol."""

    code = "engine_garbled"
    default_message = define_message(
        "error.engine_garbled", "The answer does not follow the engine's protocol."
    )
    student = define_message(
        "student.engine_garbled",
        "The computer that should grade this part sent an invalid answer.",
    )


class BudgetExceeded(EngineError):
    """The stage did not finish within its time limit."""

    code = "budget_exceeded"
    default_message = define_message(
        "error.budget_exceeded", "The stage did not finish within its time limit."
    )
    student = define_message("student.budget_exceeded", "This part took longer than its time limit.")


class OutputTruncated(EngineError):
    """The model reached its token limit before the answer was complete."""

    code = "output_truncated"
    default_message = define_message(
        "error.output_truncated", "The model reached its token limit before the answer was complete."
    )
    retry: Retry = "later"
    student = define_message(
        "student.output_truncated", "The text for this part was too long and was cut off."
    )


class OutputEmpty(EngineError):
    """The model returned an empty answer."""

    code = "output_empty"
    default_message = define_message("error.output_empty", "The model returned an empty answer.")
    student = define_message("student.output_empty", "The feedback on this part is empty.")


class OutputEndless(EngineError):
    """The model did not stop: it exceeded its token limit by far, or wrote only white space."""

    code = "output_endless"
    default_message = define_message(
        "error.output_endless",
        "The model did not stop: it exceeded its token limit by far, or wrote only white space.",
    )
    student = define_message("student.output_endless", "The text for this part was not finished.")


class OutputInvalid(EngineError):
    """The model's answer does not follow the JSON schema, even after one retry."""

    code = "output_invalid"
    default_message = define_message(
        "error.output_invalid", "The model's answer does not follow the JSON schema, even after one retry."
    )
    student = define_message("student.output_invalid", "The text for this part was invalid and was not used.")


class JobInvalid(EngineError):
    """The job is invalid, so no machine can run it."""

    code = "job_invalid"
    default_message = define_message("error.job_invalid", "The job is invalid, so no machine can run it.")
    retry: Retry = "never"
    student = define_message(
        "student.job_invalid", "This part of your submission cannot be graded automatically as it is."
    )


class Cancelled(EngineError):
    """The run was canceled because its result is no longer needed."""

    code = "cancelled"
    default_message = define_message(
        "error.cancelled", "The run was canceled because its result is no longer needed."
    )
    student = define_message("student.cancelled", "The grading of this part was canceled.")


class MachineLost(EngineError):
    """The machine stopped sending heartbeats during this run."""

    code = "machine_lost"
    default_message = define_message(
        "error.machine_lost", "The machine stopped sending heartbeats during this run."
    )
    student = define_message(
        "student.machine_lost", "The computer that was grading this part is no longer available."
    )


class MachineStalled(EngineError):
    """The machine sends heartbeats, but this run made no progress within its time limit."""

    code = "machine_stalled"
    default_message = define_message(
        "error.machine_stalled",
        "The machine sends heartbeats, but this run made no progress within its time limit.",
    )
    student = define_message(
        "student.machine_stalled", "The computer that was grading this part made no progress."
    )


class Exhausted(EngineError):
    """The run was retried as often as allowed and never finished."""

    code = "exhausted"
    default_message = define_message(
        "error.exhausted", "The run was retried as often as allowed and never finished."
    )
    retry: Retry = "never"
    student = define_message("student.exhausted", "This part was started several times and never finished.")


_AGAIN = define_message(
    "student.again",
    "%(what)s Your submission is saved, and staff can regrade this part. You do not need to do anything.",
)
_PERSON = define_message(
    "student.person",
    "%(what)s Your submission is saved, and a person will review this part. You do not need to do anything.",
)


def model_faults() -> dict[str, type[EngineError]]:
    """Every way a stage can fail, by code."""
    found: dict[str, type[EngineError]] = {}
    kinds: list[type[EngineError]] = [EngineError]
    while kinds:
        kind = kinds.pop(0)
        if not kind.of_requests:
            found.setdefault(kind.code, kind)
        kinds += kind.__subclasses__()
    return found


def for_student(code: str) -> Message:
    """What a student reads about a stage that failed with this code; also for codes nobody knows."""
    kind = model_faults().get(code, EngineError)
    return (_PERSON if kind.retry == "never" else _AGAIN)(what=kind.student())
