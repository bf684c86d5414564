"""Base of all tables: the declarative base, ids, instants."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    DateTime,
    Dialect,
    String,
    Text,
    TypeDecorator,
)
from sqlalchemy.orm import DeclarativeBase

from grading.domain.messages import Message, verbatim

MAX_MESSAGE_TEXT = 8000
"""Characters of a stored message; of a longer one only the beginning of the English sentence is kept."""
MAX_SENTENCE = 2000
"""Characters of that beginning."""


class UtcDateTime(TypeDecorator[datetime]):
    """An instant; aware and in UTC in Python, on every database."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert for the database."""
        if value is None:
            return None
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert from the database."""
        if value is None or value.tzinfo is UTC:
            return value
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class MessageText(TypeDecorator[Message]):
    """A coded message, as JSON in a column of text; empty where nothing is said."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Message | None, dialect: Dialect) -> str:
        """Convert for the database."""
        return "" if value is None else stored_message(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Message:
        """Convert from the database."""
        return read_message(value or "")


def stored_message(message: Message) -> str:
    """The column's text: without NUL, which PostgreSQL refuses, and of bounded length."""
    if not (message.code or message.message):
        return ""
    content = json.dumps(_without_nul(message.model_dump(mode="json")), ensure_ascii=False)
    if len(content) <= MAX_MESSAGE_TEXT:
        return content
    return stored_message(verbatim(message.message[:MAX_SENTENCE]))


def read_message(text: str) -> Message:
    """The message of a column's text."""
    return Message.model_validate_json(text) if text else Message()


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, dict):
        return {name: _without_nul(one) for name, one in value.items()}
    return [_without_nul(one) for one in value] if isinstance(value, list) else value


def new_id() -> str:
    """32 random hex digits."""
    return uuid.uuid4().hex


class Base(DeclarativeBase):
    """Declarative base of all tables of the store."""

    type_annotation_map = {datetime: UtcDateTime, Message: MessageText, dict[str, Any]: JSON, list[Any]: JSON}


Id = String(32)
