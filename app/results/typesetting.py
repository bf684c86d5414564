"""A template and data become a PDF, in a process that is ended when it takes too long."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grading.domain.errors import GraderError
from grading.domain.messages import MessageType, define_message

TOO_MANY_PDFS = define_message("pdf.too_many_pdfs", "The server is creating many PDFs right now.")
PDF_FAILED = define_message("pdf.pdf_failed", "The PDF could not be created.")

log = logging.getLogger(__name__)
HERE = Path(__file__).parent
SECONDS = 30.0
"""For one PDF; a long notebook takes about one."""
AT_ONCE = 2
"""PDFs that are made at the same time; others wait their turn."""
PATIENCE_S = 20.0
"""For a turn."""
KIND = re.compile(rb"^([A-Za-z_][A-Za-z_.]{0,60}(?:Error|Exception|Exit|Interrupt))\b", re.MULTILINE)
MOST_SAID = 10_000
_turns = threading.BoundedSemaphore(AT_ONCE)


TRY_AGAIN = define_message("pdf.try_again", "%(why)s Try again in a minute, or print the result page.")


class NotPrinted(GraderError):
    """The PDF could not be created."""

    status = 503
    code = "not_printed"
    default_message = define_message("error.not_printed", "The PDF could not be created.")

    def __init__(self, why: MessageType) -> None:
        super().__init__(TRY_AGAIN(why=why))


def typeset(data: Mapping[str, Any], pictures: Mapping[str, bytes]) -> bytes:
    """The PDF. `pictures` are files by name; without them if they cannot be read. Raises NotPrinted."""
    if not _turns.acquire(timeout=PATIENCE_S):
        raise NotPrinted(TOO_MANY_PDFS)
    try:
        made = _made(data, pictures)
        if made is None and pictures:
            made = _made(_without_pictures(data), {})
    finally:
        _turns.release()
    if made is None:
        raise NotPrinted(PDF_FAILED)
    return made


def _made(data: Mapping[str, Any], pictures: Mapping[str, bytes]) -> bytes | None:
    """Nothing where the process failed or took too long."""
    with tempfile.TemporaryDirectory(prefix="grader-pdf-") as folder:
        place = Path(folder)
        (place / "result.typ").write_bytes((HERE / "print" / "result.typ").read_bytes())
        for name, content in pictures.items():
            (place / name).write_bytes(content)
        command = [sys.executable, "-I", str(HERE / "typesetting_process.py")]
        environment = {"RAYON_NUM_THREADS": "1", "HOME": folder, "PATH": "/nowhere"}
        try:
            done = subprocess.run(
                command, input=json.dumps(data).encode(), cwd=place, env=environment,
                capture_output=True, timeout=SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            log.warning("creating a PDF timed out after %.0f s", SECONDS)
            return None
    if done.returncode != 0 or not done.stdout.startswith(b"%PDF-"):
        length = len(done.stderr)
        log.warning(
            "a PDF could not be created (exit status %d): %s, %d bytes of error output",
            done.returncode,
            _kind(done.stderr),
            length,
        )
        return None
    return done.stdout


def _kind(errors: bytes) -> str:
    """The class of the last error only: what stands beside it may quote the submission."""
    found = KIND.findall(errors[-MOST_SAID:])
    return found[-1].decode() if found else "no error named"


def _without_pictures(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with a sentence in the place of each picture."""
    documents = [
        {**one, "parts": [_described(part) for part in one["parts"]]} for one in data.get("documents", [])
    ]
    return {**data, "documents": documents}


def _described(part: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "note", "text": f"({part['alt']})"} if part["kind"] == "picture" else part
