"""Notebooks with pictures, changes by people, and a grade that has all of it, for tests of the result."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

from grading.domain.document import Location
from grading.domain.jobs import Finding, Quote, Suggestion
from grading.domain.report import Report
from grading.domain.stages import AnalysisOutput
from grading.store import tables
from grading.store.database import now
from grading.store.grades.final_score import update_final_score
from tests.integration.webapp import School, report

NOTEBOOK = "work.ipynb"


def png(width: int = 40, height: int = 20, extra: bytes = b"") -> bytes:
    """A real picture; `extra` becomes a comment in it."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = b"".join(b"\0" + bytes(x % 256 for x in range(3 * width)) for _ in range(height))
    said = chunk(b"tEXt", b"Comment\0" + extra) if extra else b""
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            said,
            chunk(b"IDAT", zlib.compress(lines)),
            chunk(b"IEND", b""),
        ]
    )


def display(**data: str) -> dict[str, Any]:
    """An output that shows something; `image_png` is `image/png`."""
    kinds = {name.replace("_", "/", 1): text for name, text in data.items()}
    return {"output_type": "display_data", "metadata": {}, "data": kinds}


def picture(data: bytes) -> dict[str, Any]:
    """An output that is said to be a PNG."""
    return display(image_png=base64.b64encode(data).decode())


def code(source: str, *outputs: dict[str, Any], count: int | None = 1) -> dict[str, Any]:
    """A cell of code."""
    return {
        "cell_type": "code", "metadata": {}, "execution_count": count, "source": source,
        "outputs": list(outputs),
    }  # fmt: skip


def text(source: str) -> dict[str, Any]:
    """A cell of text."""
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def notebook(*cells: dict[str, Any]) -> bytes:
    """A notebook of these cells."""
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells)}
    return json.dumps(book).encode()


def sample() -> bytes:
    """Text, code with a picture, a table and a stream."""
    table = "<table><tr><td>day</td><td>sum</td></tr><tr><td>mon</td><td>3</td></tr></table>"
    return notebook(
        text("# Sales of a year\n\nWhat I *expect*: more in summer."),
        code("import pandas as pd\nsales = pd.read_csv('sales.csv')\nsales.plot()", picture(png(320, 160))),
        code(
            "sales.head()",
            display(text_html=table),
            {"output_type": "stream", "name": "stdout", "text": "3\n"},
        ),
        code("print(total)", count=None),
    )


def at(cell: int, line: int | None = None) -> Location:
    """A place in the notebook."""
    return Location(document=NOTEBOOK, cell=cell, line=line)


def placed() -> Report:
    """A report whose remarks and quotes have places in `sample`."""
    whole = report()
    first = whole.criteria[0].model_copy(
        update={"quotes": (Quote(text="sales = pd.read_csv('sales.csv')", location=at(2, 2)),)}
    )
    analysis = AnalysisOutput(
        judgements=(),
        summary="The data is loaded and looked at.",
        findings=(
            Finding(severity="praise", title="Reads the file", detail="As asked.", location=at(2, 2)),
            Finding(severity="major", title="No total is made", detail="It fails here.", location=at(4, 1)),
            Finding(severity="minor", title="No check for gaps", detail="Look for missing days."),
        ),
        suggestions=(
            Suggestion(
                what="Name the axes", why="Readers ask.", how="Use `xlabel`.",
                example="ax.set_xlabel('day')", location=at(2, 3),
            ),
        ),
    )  # fmt: skip
    return whole.model_copy(update={"criteria": (first, *whole.criteria[1:]), "analysis": analysis})


def graded(school: School, who: str = "anna", released: bool = True, made: Report | None = None) -> str:
    """A graded notebook of somebody."""
    submission = school.submit(who, data=sample(), name=NOTEBOOK)
    school.grade(submission, made or placed(), released=released)
    return submission


def change(school: School, submission: str, by: str = "teacher", **values: Any) -> int:
    """A change by a person, settled. `kind`, `target` and `reason` beside what it says."""
    kept = {name: values.pop(name, "") for name in ("kind", "target", "reason")}
    with school.store.write() as session:
        grade = session.query(tables.Grade).filter_by(submission_id=submission).one()
        row = tables.Change(
            round_id=grade.round_id, submission_id=submission, value=values, before={"points": 4.5},
            by=school.users[by], at=now(session), **kept,
        )  # fmt: skip
        session.add(row)
        session.flush()
        update_final_score(session, grade)
        return row.id
