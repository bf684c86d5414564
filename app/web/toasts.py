"""Messages after a form, with a button that undoes what the form did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import flash, url_for

MOST_BYTES = 1500
"""Size of an Undo form's fields; they wait in the session's cookie, which browsers drop beyond 4 KiB."""


def flash_undo(message: str, endpoint: str, fields: Mapping[str, Any] | None = None, **values: Any) -> None:
    """Say what was done, with a button that undoes it by a form with these fields to the endpoint.

    `values` are those of the endpoint's address. None and False send no field.
    """
    sent = {
        name: str(value) for name, value in (fields or {}).items() if value is not None and value is not False
    }
    toast: Any = {"text": message, "address": url_for(endpoint, **values), "fields": sent}
    size = sum(len(f"{name}{text}".encode()) for name, text in sent.items())
    flash(toast if size <= MOST_BYTES else message, "success")
