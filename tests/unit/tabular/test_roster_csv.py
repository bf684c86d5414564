"""Tables of people as spreadsheets and other systems write them."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.tabular.roster_csv import (
    MAX_BYTES,
    RosterUnreadable,
    Row,
    decode_text,
    parse_roster,
    single_person,
    to_csv,
)

PLAIN = "id,name,email,role\ns-1,Ada Lovelace,ada@school.example,\ns-2,Ben,ben@school.example,grader\n"
ADA = Row(2, "s-1", "Ada Lovelace", "ada@school.example")
BEN = Row(3, "s-2", "Ben", "ben@school.example", "grader")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16"])
def test_separators_line_ends_and_codings(separator: str, ends: str, coding: str) -> None:
    text = PLAIN.replace(",", separator).replace("\n", ends)
    assert parse_roster(decode_text(text.encode(coding))).rows == (ADA, BEN)


def test_what_windows_wrote_without_a_mark_is_read() -> None:
    (row,) = parse_roster(decode_text("id;name\ns-1;Zoë Müller – Łódź?\n".encode("cp1252", "replace"))).rows
    assert row.name == "Zoë Müller – ?ód??"


def test_quotes_blanks_and_blank_lines() -> None:
    text = '\n\nid, name ,email\n\n"s-1","Lovelace, Ada ""the first""",\n  s-2  ,  Ben  ,\n,,\n'
    assert parse_roster(text).rows == (
        Row(5, "s-1", 'Lovelace, Ada "the first"'),
        Row(6, "s-2", "Ben"),
    )


def test_blanks_and_marks_have_one_form() -> None:
    text = "id,name\ns-1,Zoe\u0308\u00a0\u2003Mu\u0308ller \ns-\u202e2,Ben\n"
    found = parse_roster(text)
    assert found.rows == (Row(2, "s-1", "Zo\u00eb M\u00fcller"),)
    assert found.problems[0].said.message == "The ID has characters that cannot be displayed."


def test_columns_as_other_systems_call_them_in_any_order() -> None:
    text = "Email address;First name;Surname;ID number;Groups\na@b.example;Ada;Lovelace;7;x\n"
    assert parse_roster(text).rows == (Row(2, "7", "Ada Lovelace", "a@b.example"),)
    assert parse_roster("Vorname\tNachname\tMatrikelnummer\nAda\tLovelace\t7").rows == (
        Row(2, "7", "Ada Lovelace"),
    )


def test_a_column_of_first_names_beside_one_called_name() -> None:
    """Some systems call the surname `name`; others give the whole name and its parts."""
    assert parse_roster("id;Vorname;Name\n7;Ada;Lovelace\n").rows == (Row(2, "7", "Ada Lovelace"),)
    assert parse_roster("id;Vorname;Name\n7;Ada;Ada Lovelace\n8;;Ben\n").rows == (
        Row(2, "7", "Ada Lovelace"),
        Row(3, "8", "Ben"),
    )
    both = "id,first name,last name,full name\n7,Ada,Lovelace,Countess Lovelace\n"
    assert parse_roster(both).rows == (Row(2, "7", "Countess Lovelace"),)


def test_problems_name_their_line_and_leave_the_others() -> None:
    text = (
        "id,name,email,role\ns-1,Ada,,\n,Nobody,,\ns-1,Ada again,,\ns-2,Ben,no address,\ns-3,Cy,,boss\n"
        + "s-4,D\x07,,\n"
        + f"{'x' * 201},E,,\ns-5,F,f@x.example,TA\n"
    )
    found = parse_roster(text)
    assert [row.id for row in found.rows] == ["s-1", "s-5"]
    assert found.rows[1].role == "grader"
    assert [(problem.line, problem.said.message) for problem in found.problems] == [
        (3, "The ID is missing."),
        (4, "The ID 's-1' is already in line 2."),
        (5, "Invalid email address: it needs an @ and no spaces."),
        (6, "The role is not student, grader or instructor."),
        (7, "The name has characters that cannot be displayed."),
        (8, "The ID is longer than 200 characters."),
    ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"Ada,ada@x.example\n", "must name the columns"),
        (b'id,name\ns-1,"Ada\n', "Line 2"),
        (b'id,name\ns-1,"Ada"x\n', "Line 2"),
        (b"PK\x03\x04 a workbook", "Save as"),
        (b"id,name\ns-1,\x00\x00", "not a text file"),
        (b"id\n" + b"x" * MAX_BYTES, "larger than 1024 KB"),
        (b"id\n" + b"\n".join(b"s-%d" % n for n in range(5001)), "more than 5000"),
        (b"id,name\ns-1," + b"x" * 200_000, "Line 2"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(data: bytes, words: str) -> None:
    with pytest.raises(RosterUnreadable, match=words):
        parse_roster(decode_text(data))


@given(st.binary(max_size=300))
def test_no_bytes_lead_to_another_error(data: bytes) -> None:
    try:
        found = parse_roster(decode_text(b"id,name,email,role\n" + data))
    except RosterUnreadable:
        return
    ids = [row.id for row in found.rows]
    assert len(ids) == len(set(ids))
    for row in found.rows:
        assert 0 < len(row.id) <= 200
        assert (row.id + row.name + row.email).isprintable()


def test_one_person_by_a_form() -> None:
    assert single_person(" s-1 ", "Ada", "", "student").rows == (Row(1, "s-1", "Ada", "", "student"),)
    assert single_person("", "Ada", "", "").problems[0].said.message == "The ID is missing."


def test_tables_for_spreadsheets_hold_no_formulas() -> None:
    made = to_csv(("id", "name"), [["=1+1", '@x "y", z'], ["+1", "-1"], ["s-1", "Ada"]])
    assert made.startswith(b"\xef\xbb\xbf")
    rows = list(csv.reader(io.StringIO(made.decode("utf-8-sig"))))
    assert rows[1:] == [["'=1+1", '\'@x "y", z'], ["'+1", "'-1"], ["s-1", "Ada"]]
