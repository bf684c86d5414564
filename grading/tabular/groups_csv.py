"""A CSV file with groups: which student is in which."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from grading.domain.errors import GraderError

MOST_BYTES = 1024 * 1024
MOST_PROBLEMS = 5


class GroupProblem(GraderError):
    """This group cannot be made so."""

    code = "group_invalid"
    status = 422


def read_groups(data: bytes, students: Mapping[str, int]) -> dict[int, str]:
    """Student's number -> label of their group, from the columns `group` and `student` (a sign-in name).

    Raises GroupProblem, which names the lines, when anything in the file is wrong.
    """
    if not data.strip():
        raise GroupProblem("Choose a CSV file with the columns group and student.")
    if len(data) > MOST_BYTES:
        raise GroupProblem("This file is too large for a list of groups; it may have 1 MB.")
    rows = _rows(data)
    found: dict[int, str] = {}
    problems: list[str] = []
    for number, row in rows:
        name = _plain(row.get("student") or "")
        if not name:
            continue
        user_id = students.get(name)
        if user_id is None:
            problems.append(f"line {number}: no student of this course signs in as “{name[:60]}”")
        elif user_id in found:
            problems.append(f"line {number}: “{name[:60]}” stands in the file twice")
        else:
            found[user_id] = _plain(row.get("group") or "")[:100]
    if problems:
        more = f", and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
        raise GroupProblem(f"Nothing was changed: {'; '.join(problems[:MOST_PROBLEMS])}{more}.")
    return found


def _rows(data: bytes) -> list[tuple[int, dict[str, str | None]]]:
    try:
        text = data.decode("utf-8-sig")
        first = text.split("\n", 1)[0]
        marks = ";" if first.count(";") > first.count(",") else ","
        reader = csv.DictReader(io.StringIO(text), delimiter=marks, strict=True)
        names = [(name or "").strip().casefold() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise GroupProblem(f"This is no CSV file in UTF-8: {error}.") from None
    if not {"group", "student"} <= set(names):
        raise GroupProblem("The first line of the file names its columns; it needs group and student.")
    return rows


def _plain(text: str) -> str:
    """Without what keeps spreadsheets from reading it as a formula."""
    text = text.strip()
    return text[1:] if text[:1] == "'" and text[1:2] in ("=", "+", "-", "@") else text
