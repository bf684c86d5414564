"""Files of a message that are somewhere else: got once, within bounds, before anything is stored."""

from __future__ import annotations

import time

from app.web.services import services
from grading.domain.errors import GraderError, UploadTooLarge
from grading.integrations.events import File
from grading.integrations.http_client import OutsideFailed, Refused, TooMuch, ask

FETCH_S = 6.0
"""For all files of a message together."""
_LATER = (408, 425, 429)


class FileRefused(GraderError):
    """A file cannot be got from the address in the message, however often it is tried."""

    code = "file_refused"
    status = 422


class FileAway(GraderError):
    """A file could not be got from the address in the message just now; send the message again."""

    code = "file_away"
    status = 503


def fetch(file: File, until: float, most_bytes: int) -> bytes:
    """What is behind a file's address, by `until` of the monotonic clock. Raises FileRefused, FileAway."""
    name, left = file.name[:80], until - time.monotonic()
    if left <= 0:
        raise FileAway(f"data.files: {name!r} could not be got in time; send fewer files, or one zip.")
    try:
        answer = ask(
            "GET",
            file.url or "",
            headers={"User-Agent": "Grader"},
            timeout_s=left,
            most_bytes=most_bytes,
            allow=services().config.server.allowed,
        )
    except Refused as error:
        raise FileRefused(f"data.files: the address of {name!r} is not asked. {error.message}") from None
    except TooMuch as error:
        raise UploadTooLarge(f"data.files: {name!r} cannot be taken: {error.message}.") from None
    except OutsideFailed as error:
        raise FileAway(f"data.files: {name!r} could not be got: {error.message}.") from None
    if answer.status in _LATER or answer.status >= 500:
        raise FileAway(f"data.files: {name!r} could not be got: its server answered {answer.status}.")
    if answer.status != 200:
        raise FileRefused(
            f"data.files: {name!r} cannot be got: its server answered {answer.status}. "
            "Redirects are not followed."
        )
    return answer.body
