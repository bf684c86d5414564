"""Rosters and groups as CSV, parsed from files of spreadsheets and other systems; pure."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from grading.domain.errors import DocumentError, GraderError
from grading.domain.messages import Message, MessageType, define_message

TABLE_TOO_LARGE = define_message(
    "roster_csv.table_too_large", "The table is larger than %(most_kb)s KB; split it and import the parts."
)
NOT_TEXT = define_message(
    "roster_csv.not_text", "This is not a text file. In a spreadsheet, choose 'Save as' and CSV."
)
TABLE_EMPTY = define_message(
    "roster_csv.table_empty", "The table is empty. Its first line names the columns: id, name, email."
)
NO_ID_COLUMN = define_message(
    "roster_csv.no_id_column",
    "The first line must name the columns, and one of them must be 'id': id, name, email, role.",
)
NO_GROUPS_FILE = define_message(
    "roster_csv.no_groups_file", "Choose a CSV file with the columns group and student."
)
GROUPS_TOO_LARGE = define_message(
    "roster_csv.groups_too_large", "The file is too large. A list of groups can have up to 1 MB."
)
NO_GROUP_COLUMNS = define_message(
    "roster_csv.no_group_columns", "The first line of the file must name the columns group and student."
)
TOO_MANY_PEOPLE = define_message(
    "roster_csv.too_many_people", "The table has more than %(most)s people; split it and import the parts."
)
LINE_UNREADABLE = define_message(
    "roster_csv.line_unreadable",
    "Line %(line)s cannot be read: a quotation mark is not closed or in the middle of a field.",
)
ID_TWICE = define_message("roster_csv.id_twice", "The ID '%(id)s' is already in line %(line)s.")
NO_ID = define_message("roster_csv.no_id", "The ID is missing.")
ID_NOT_PRINTABLE = define_message(
    "roster_csv.id_not_printable", "The ID has characters that cannot be displayed."
)
ID_TOO_LONG = define_message("roster_csv.id_too_long", "The ID is longer than %(most)s characters.")
NAME_NOT_PRINTABLE = define_message(
    "roster_csv.name_not_printable", "The name has characters that cannot be displayed."
)
NAME_TOO_LONG = define_message("roster_csv.name_too_long", "The name is longer than %(most)s characters.")
EMAIL_TOO_LONG = define_message(
    "roster_csv.email_too_long", "The email address is longer than %(most)s characters."
)
EMAIL_WRONG = define_message("roster_csv.email_wrong", "Invalid email address: it needs an @ and no spaces.")
ROLE_WRONG = define_message("roster_csv.role_wrong", "The role is not student, grader or instructor.")
NO_SUCH_STUDENT = define_message(
    "groups_csv.no_such_student", "line %(line)s: this course has no student with the login “%(name)s”"
)
STUDENT_TWICE = define_message("groups_csv.student_twice", "line %(line)s: “%(name)s” is in the file twice")
AND_ANOTHER = define_message("groups_csv.and_another", "%(first)s; %(second)s")
NOTHING_CHANGED = define_message("groups_csv.nothing_changed", "Nothing was changed: %(problems)s.")
NOTHING_CHANGED_MORE = define_message(
    "groups_csv.nothing_changed_more", "Nothing was changed: %(problems)s, and %(more)s more."
)
NOT_CSV = define_message("roster_csv.not_csv", "This is not a CSV file in UTF-8: %(why)s.")

MAX_BYTES = 1024 * 1024
MAX_ROWS = 5000
MAX_LENGTH = 200
ROLES = ("student", "grader", "instructor")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    # what other systems call them, without blanks, dots and dashes
    "id": (
        *("id", "studentid", "studentnumber", "idnumber", "number", "login", "loginid", "sisloginid"),
        *("userid", "username", "sisuserid", "matriculationnumber", "matrikelnummer", "signinname"),
    ),
    "name": ("name", "fullname", "studentname", "displayname", "student"),
    "first": ("firstname", "givenname", "vorname"),
    "last": ("lastname", "surname", "familyname", "nachname"),
    "email": ("email", "emailaddress", "mail", "emailadresse"),
    "role": ("role", "rolle"),
}
ROLE_WORDS: Mapping[str, str] = {
    **{role: role for role in ROLES},
    **dict.fromkeys(("learner", "participant", "studentin"), "student"),
    **dict.fromkeys(("ta", "assistant", "teaching assistant", "tutor"), "grader"),
    **dict.fromkeys(("teacher", "lecturer", "professor"), "instructor"),
}


class RosterUnreadable(DocumentError):
    """The table cannot be read; save it as CSV with the columns id, name and email."""

    code = "roster_unreadable"
    default_message = define_message(
        "error.roster_unreadable",
        "The table cannot be read; save it as CSV with the columns id, name and email.",
    )


@dataclass(frozen=True)
class Row:
    """One row: a person's id and fields; empty fields are not given."""

    line: int
    id: str
    name: str = ""
    email: str = ""
    role: str = ""


@dataclass(frozen=True)
class Problem:
    """A row that is left out, and why."""

    line: int
    said: Message


@dataclass(frozen=True)
class Roster:
    """A parsed table."""

    rows: tuple[Row, ...]
    problems: tuple[Problem, ...] = ()


def decode_text(data: bytes) -> str:
    """The text of a file: UTF-8 or UTF-16 with a byte order mark, else UTF-8, else Windows' Latin-1.

    Raises RosterUnreadable for what is too large or no text.
    """
    if len(data) > MAX_BYTES:
        raise RosterUnreadable(TABLE_TOO_LARGE(most_kb=MAX_BYTES // 1024))
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("cp1252", "replace")
    if "\0" in text or data.startswith((b"PK\x03\x04", b"%PDF")):
        raise RosterUnreadable(NOT_TEXT)
    return text


def parse_roster(text: str) -> Roster:
    """Parse the people of a table, and the rows that cannot be used. Raises RosterUnreadable."""
    text = text.removeprefix("\ufeff")
    lines = _lines(text)
    header = next(lines, None)
    if header is None:
        raise RosterUnreadable(TABLE_EMPTY)
    places = _places(header[1])
    rows: list[Row] = []
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for number, fields in lines:
        if len(rows) + len(problems) >= MAX_ROWS:
            raise RosterUnreadable(TOO_MANY_PEOPLE(most=MAX_ROWS))
        row, wrong = _row(number, fields, places)
        if not wrong and row.id in seen:
            wrong = ID_TWICE(id=row.id, line=seen[row.id])
        if wrong:
            problems.append(Problem(number, wrong))
        else:
            seen[row.id] = number
            rows.append(row)
    return Roster(tuple(rows), tuple(problems))


def single_person(id_: str, name: str, email: str, role: str) -> Roster:
    """A single person from a form."""
    fields = [_tidy(field) for field in (id_, name, email, role)]
    row, wrong = _row(1, fields, {"id": 0, "name": 1, "email": 2, "role": 3})
    return Roster((), (Problem(1, wrong),)) if wrong else Roster((row,))


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of each row that is not blank; a quoted field may span lines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    before = 0
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                yield before + 1, [_tidy(field) for field in fields]
            before = reader.line_num
    except csv.Error:
        raise RosterUnreadable(LINE_UNREADABLE(line=before + 1)) from None


def _tidy(field: str) -> str:
    """Unicode NFC with single blanks, so that equal ids compare equal."""
    return unicodedata.normalize("NFC", " ".join(field.split()))


def _delimiter(text: str) -> str:
    """The one of comma, semicolon and tab that is most frequent in the first line."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    bare = re.sub(r'"[^"]*"', "", first)
    return max(",;\t", key=bare.count)


def _places(header: Sequence[str]) -> Mapping[str, int]:
    """Index of each column."""
    found: dict[str, int] = {}
    for place, title in enumerate(header):
        word = re.sub(r"[\s._\-]", "", title).casefold()
        column = next((column for column, words in COLUMNS.items() if word in words), None)
        if column is not None:
            found.setdefault(column, place)
    if "id" not in found:
        raise RosterUnreadable(NO_ID_COLUMN)
    return found


def _row(number: int, fields: Sequence[str], places: Mapping[str, int]) -> tuple[Row, Message | None]:
    """A row, and what is wrong with it."""

    def said(column: str) -> str:
        place = places.get(column, len(fields))
        return fields[place] if place < len(fields) else ""

    first, last, name = said("first"), said("last"), said("name")
    if not name or ("last" not in places and first.casefold() not in name.casefold()):
        # beside a column of first names, some systems call the surname `name`
        name = " ".join(part for part in (first, last or name) if part)
    role = ROLE_WORDS.get(said("role").casefold(), said("role"))
    row = Row(number, said("id"), name, said("email"), role)
    return row, next(
        (said(most=MAX_LENGTH) if said.names else said() for wrong, said in WRONG if wrong(row)), None
    )


def _bad_email(row: Row) -> bool:
    return bool(row.email) and not re.fullmatch(r"[^@\s,;<>\"]+@[^@\s,;<>\"]+", row.email)


WRONG: tuple[tuple[Callable[[Row], bool], MessageType], ...] = (
    (lambda row: not row.id, NO_ID),
    (lambda row: not row.id.isprintable(), ID_NOT_PRINTABLE),
    (lambda row: len(row.id) > MAX_LENGTH, ID_TOO_LONG),
    (lambda row: not row.name.isprintable(), NAME_NOT_PRINTABLE),
    (lambda row: len(row.name) > MAX_LENGTH, NAME_TOO_LONG),
    (lambda row: len(row.email) > MAX_LENGTH, EMAIL_TOO_LONG),
    (
        lambda row: _bad_email(row) or not row.email.isprintable(),
        EMAIL_WRONG,
    ),
    (lambda row: bool(row.role) and row.role not in ROLES, ROLE_WRONG),
)


def to_csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    """CSV with a byte order mark, for spreadsheets; no cell can be read as a formula."""
    out = io.StringIO()
    writer = csv.writer(out)
    for row in (header, *rows):
        writer.writerow([_neutral(cell) for cell in row])
    return b"\xef\xbb\xbf" + out.getvalue().encode()


def _neutral(cell: str) -> str:
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else cell


MOST_BYTES = 1024 * 1024
MOST_PROBLEMS = 5


class GroupProblem(GraderError):
    """This group cannot be created."""

    code = "group_invalid"
    status = 422
    default_message = define_message("error.group_problem", "This group cannot be created.")


def read_groups(data: bytes, students: Mapping[str, int]) -> dict[int, str]:
    """Student's id -> label of their group, from the columns `group` and `student` (a sign-in name).

    Raises GroupProblem, which names the lines, when anything in the file is wrong.
    """
    if not data.strip():
        raise GroupProblem(NO_GROUPS_FILE)
    if len(data) > MOST_BYTES:
        raise GroupProblem(GROUPS_TOO_LARGE)
    rows = _rows(data)
    found: dict[int, str] = {}
    problems: list[Message] = []
    for number, row in rows:
        name = _plain(row.get("student") or "")
        if not name:
            continue
        user_id = students.get(name)
        if user_id is None:
            problems.append(NO_SUCH_STUDENT(line=number, name=name[:60]))
        elif user_id in found:
            problems.append(STUDENT_TWICE(line=number, name=name[:60]))
        else:
            found[user_id] = _plain(row.get("group") or "")[:100]
    if problems:
        raise GroupProblem(_together(problems))
    return found


def _together(problems: Sequence[Message]) -> Message:
    said = problems[0]
    for one in problems[1:MOST_PROBLEMS]:
        said = AND_ANOTHER(first=said, second=one)
    more = len(problems) - MOST_PROBLEMS
    return NOTHING_CHANGED_MORE(problems=said, more=more) if more > 0 else NOTHING_CHANGED(problems=said)


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
        raise GroupProblem(NOT_CSV(why=error)) from None
    if not {"group", "student"} <= set(names):
        raise GroupProblem(NO_GROUP_COLUMNS)
    return rows


def _plain(text: str) -> str:
    """A cell without the apostrophe that protects it from being read as a formula."""
    text = text.strip()
    return text[1:] if text[:1] == "'" and text[1:2] in ("=", "+", "-", "@") else text
