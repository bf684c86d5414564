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


class EngineError(GraderError):
    """The engine did not give a usable answer."""

    code = "engine_failed"
    retry: Retry = "elsewhere"
    """What may help."""


class EngineUnreachable(EngineError):
    """The engine refused the connection or did not answer within 5 s."""

    code = "engine_unreachable"


class EngineBusy(EngineError):
    """The engine's own queue is full."""

    code = "engine_busy"
    retry: Retry = "later"


class ModelMissing(EngineError):
    """The model is not present on the machine."""

    code = "model_missing"


class EngineStalled(EngineError):
    """The engine sent nothing for longer than it may."""

    code = "engine_stalled"


class BudgetExceeded(EngineError):
    """The stage did not finish within its time budget."""

    code = "budget_exceeded"


class OutputTruncated(EngineError):
    """The model reached its token limit before the answer was complete."""

    code = "output_truncated"


class OutputInvalid(EngineError):
    """The model's answer does not follow the schema, also after one repair try."""

    code = "output_invalid"


class JobInvalid(EngineError):
    """The job cannot be done by any machine as it is."""

    code = "job_invalid"
    retry: Retry = "never"
