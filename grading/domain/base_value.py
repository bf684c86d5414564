"""The base of all values that cross process borders as JSON, and the error of their validators."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from grading.domain.messages import Message


class InvalidValue(ValueError):
    """A value that a validator refuses, with a coded message."""

    def __init__(self, message: Message) -> None:
        super().__init__(message.message)
        self.coded = message


class Value(BaseModel):
    """A frozen value that crosses process borders as JSON; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
