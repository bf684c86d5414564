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
    """Something Grader refuses or cannot do, said in one plain sentence."""

    code = "error"
    status = 400
    default_message: ClassVar[MessageType] = define_message(
        "error.grader_error", "Something Grader refuses or cannot do, said in one plain sentence."
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
    """The upload has nothing in it."""

    code = "upload_empty"
    default_message = define_message("error.empty_upload", "The upload has nothing in it.")


class AssignmentError(GraderError):
    """The assignment folder or rubric contradicts itself or lacks something."""

    code = "assignment_invalid"
    status = 422
    default_message = define_message(
        "error.assignment_error", "The assignment folder or rubric contradicts itself or lacks something."
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


class NotSignedIn(GraderError):
    """Sign in or send a valid token first."""

    code = "not_signed_in"
    status = 401
    default_message = define_message("error.not_signed_in", "Sign in or send a valid token first.")


class SignatureInvalid(GraderError):
    """The message's signature, time or id could not be verified."""

    code = "signature_invalid"
    status = 401
    default_message = define_message(
        "error.signature_invalid", "The message's signature, time or id could not be verified."
    )


class Conflict(GraderError):
    """This was already done with other content."""

    code = "conflict"
    status = 409
    default_message = define_message("error.conflict", "This was already done with other content.")


class SandboxUnavailable(GraderError):
    """Nothing can be run in a sandbox here now; nobody's work is to blame."""

    status = 503
    code = "sandbox_unavailable"
    default_message = define_message(
        "error.sandbox_unavailable", "Nothing can be run in a sandbox here now; nobody's work is to blame."
    )


class EngineError(GraderError):
    """The engine did not give a usable answer."""

    code = "engine_failed"
    default_message = define_message("error.engine_error", "The engine did not give a usable answer.")
    retry: Retry = "elsewhere"
    """What may help."""
    student = define_message(
        "student.engine_failed", "A fault stopped the computer that was working on this part."
    )
    """What happened, for the student: without names, addresses and jargon."""


class EngineUnreachable(EngineError):
    """The engine refused the connection or did not answer within 5 s."""

    code = "engine_unreachable"
    default_message = define_message(
        "error.engine_unreachable", "The engine refused the connection or did not answer within 5 s."
    )
    student = define_message(
        "student.engine_unreachable", "The computer that should work on this part could not be reached."
    )
    refused = False
    """No connection was made at all: so it is for everyone, whatever was asked."""


class EngineBusy(EngineError):
    """The engine's own queue is full."""

    code = "engine_busy"
    default_message = define_message("error.engine_busy", "The engine's own queue is full.")
    retry: Retry = "later"
    student = define_message(
        "student.engine_busy", "The computers that work on this part had too much to do."
    )


class ModelMissing(EngineError):
    """The model is not present on the machine."""

    code = "model_missing"
    default_message = define_message("error.model_missing", "The model is not present on the machine.")
    student = define_message(
        "student.model_missing", "The computer that should work on this part was not fully set up."
    )


class EngineStalled(EngineError):
    """The engine sent nothing for longer than it may."""

    code = "engine_stalled"
    default_message = define_message(
        "error.engine_stalled", "The engine sent nothing for longer than it may."
    )
    student = define_message(
        "student.engine_stalled", "The computer that was working on this part stopped responding."
    )


class EngineBrokeOff(EngineError):
    """The engine began to answer and ended before the answer was complete."""

    code = "engine_broke_off"
    default_message = define_message(
        "error.engine_broke_off", "The engine began to answer and ended before the answer was complete."
    )
    student = define_message(
        "student.engine_broke_off", "The computer that was working on this part stopped before it was done."
    )


class EngineGarbled(EngineError):
    """What answered does not speak the engine's protocol."""

    code = "engine_garbled"
    default_message = define_message(
        "error.engine_garbled", "What answered does not speak the engine's protocol."
    )
    student = define_message(
        "student.engine_garbled",
        "The computer that should work on this part gave an answer that could not be read.",
    )


class BudgetExceeded(EngineError):
    """The stage did not finish within its time budget."""

    code = "budget_exceeded"
    default_message = define_message(
        "error.budget_exceeded", "The stage did not finish within its time budget."
    )
    student = define_message("student.budget_exceeded", "This part took longer than it may.")


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
    """The model finished without writing anything."""

    code = "output_empty"
    default_message = define_message("error.output_empty", "The model finished without writing anything.")
    student = define_message("student.output_empty", "Nothing was written about this part.")


class OutputEndless(EngineError):
    """The model wrote far more than it was allowed to, or nothing but blanks without end."""

    code = "output_endless"
    default_message = define_message(
        "error.output_endless",
        "The model wrote far more than it was allowed to, or nothing but blanks without end.",
    )
    student = define_message("student.output_endless", "The text for this part did not end.")


class OutputInvalid(EngineError):
    """The model's answer does not follow the schema, also after one repair try."""

    code = "output_invalid"
    default_message = define_message(
        "error.output_invalid", "The model's answer does not follow the schema, also after one repair try."
    )
    student = define_message("student.output_invalid", "The text for this part was invalid and was not used.")


class JobInvalid(EngineError):
    """The job cannot be done by any machine as it is."""

    code = "job_invalid"
    default_message = define_message("error.job_invalid", "The job cannot be done by any machine as it is.")
    retry: Retry = "never"
    student = define_message(
        "student.job_invalid", "This part of your submission cannot be graded automatically as it is."
    )


class Cancelled(EngineError):
    """Nobody waits for this run any more, so it was not finished."""

    code = "cancelled"
    default_message = define_message(
        "error.cancelled", "Nobody waits for this run any more, so it was not finished."
    )
    student = define_message("student.cancelled", "The work on this part was called off before it was done.")


class MachineLost(EngineError):
    """The machine that did this run no longer answers."""

    code = "machine_lost"
    default_message = define_message("error.machine_lost", "The machine that did this run no longer answers.")
    student = define_message("student.machine_lost", "The computer that was working on this part went off.")


class MachineStalled(EngineError):
    """The machine is alive but this run made no progress for longer than it may."""

    code = "machine_stalled"
    default_message = define_message(
        "error.machine_stalled", "The machine is alive but this run made no progress for longer than it may."
    )
    student = define_message(
        "student.machine_stalled", "The computer that was working on this part got stuck."
    )


class Exhausted(EngineError):
    """The work was begun as often as it may be and never came to an end."""

    code = "exhausted"
    default_message = define_message(
        "error.exhausted", "The work was begun as often as it may be and never came to an end."
    )
    retry: Retry = "never"
    student = define_message(
        "student.exhausted", "This part was begun several times and never came to an end."
    )


_AGAIN = define_message(
    "student.again",
    "%(what)s Your work is safe, and a person can start this part again. You do not need to do anything.",
)
_PERSON = define_message(
    "student.person",
    "%(what)s Your work is safe, and a person will look at this part; you do not need to do anything.",
)


def model_faults() -> dict[str, type[EngineError]]:
    """Every way a stage can fail, by code."""
    found: dict[str, type[EngineError]] = {}
    kinds: list[type[EngineError]] = [EngineError]
    while kinds:
        kind = kinds.pop(0)
        found.setdefault(kind.code, kind)
        kinds += kind.__subclasses__()
    return found


def for_student(code: str) -> Message:
    """What a student reads about a stage that failed with this code; also for codes nobody knows."""
    kind = model_faults().get(code, EngineError)
    return (_PERSON if kind.retry == "never" else _AGAIN)(what=kind.student())
