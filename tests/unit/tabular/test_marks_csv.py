"""Marks from before: wide and long tables, letters, missing marks, and tables that are refused."""

from __future__ import annotations

import pytest

from grading.domain.rubric import Criterion, Rubric
from grading.tabular.marks_csv import (
    MarkMapping,
    MarksUnreadable,
    MarkTable,
    ParsedMark,
    parse_marks,
    read_mapping,
)
from grading.tabular.roster_csv import RosterUnreadable

RUBRIC = Rubric(
    criteria=(
        Criterion(id="load", title="Loads the data", points=4),
        Criterion(
            id="think", title="Thinks about it", points=6, stage="feedback", levels=("no", "so", "yes")
        ),
    )
)
MAPPING = b"""
work = "Student no."
marker = "TA"
numbers = "levels"
[criteria]
Q1 = "load"
"Q2 (BC)" = { criterion = "think", marker = "BC" }
[levels]
A = "100 %"
b = 1
absent = ""
"""


def parsed(text: str, mapping: MarkMapping | None = None) -> MarkTable:
    return parse_marks(text.encode(), RUBRIC, mapping or MarkMapping())


def test_a_wide_table_needs_no_mapping_where_columns_are_criteria() -> None:
    table = parsed("id;marker;load;Thinks about it;hair\nanna;AB;3,5;6;red\nanna;CD;-;0;\n\nben;AB;n/a;3;\n")
    assert table.marks == (
        ParsedMark(2, "anna", "AB", "load", 3.5),
        ParsedMark(2, "anna", "AB", "think", 2.0),
        ParsedMark(3, "anna", "CD", "think", 0.0),
        ParsedMark(5, "ben", "AB", "think", 1.0),
    )
    assert (table.missing, table.ignored, table.problems) == (2, ("hair",), ())


def test_a_mapping_names_columns_markers_and_letters() -> None:
    table = parsed("Student no.,TA,Q1,Q2 (BC),Q3\ns-1,XY,a,B,9\ns-2,XY,absent,50 %,\n", read_mapping(MAPPING))
    assert [(one.work, one.marker, one.criterion, one.level) for one in table.marks] == [
        ("s-1", "XY", "load", 4.0), ("s-1", "BC", "think", 1.0), ("s-2", "BC", "think", 1.0),
    ]  # fmt: skip
    assert (table.missing, table.ignored) == (1, ("Q3",))


def test_a_long_table_has_a_mark_in_each_row() -> None:
    table = parsed("student,rater,criterion,points\nanna,A,load,2\nanna,B,load,4\nanna,A,style,1\n")
    assert [(one.marker, one.level) for one in table.marks] == [("A", 2.0), ("B", 4.0)]
    assert table.ignored == ("style",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id,load\nanna,good\n", "line 2: 'good' in 'load' is not a number"),
        ("id,load\nanna,5\n", "line 2: 5 in 'load' is not between 0 and 4"),
        ("id,load\nanna,-1\n", "line 2: -1 in 'load' is not between"),
        ("id,load\nanna,=1+1\n", "line 2: '=1+1' in 'load' is not a number"),
        ("id,load\nanna,1e400\n", "line 2: '1e400' in 'load' is not a number"),
        ("id,load\nanna,1\nanna,2\n", "line 3: '?' marked 'load' of the same work already in line 2"),
        ("id,load\n,1\n", "line 2: nobody is named"),
        (f"id,load\n{'x' * 90},1\n", "longer than 80 characters"),
    ],
    ids=range(8),
)
def test_lines_that_cannot_be_read_are_named(text: str, says: str) -> None:
    table = parsed(text)
    (problem,) = table.problems
    assert says in f"line {problem[0]}: {problem[1].message}"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"load,think\n1,2\n", "whose work"),
        (b"id,colour\nanna,red\n", "No column is a criterion"),
        (b"id,load,load\nanna,1,1\n", "Two columns are called 'load'"),
        (b'id,load\nanna,"1\n', "line 2: unexpected end"),
        (b"PK\x03\x04\x00", "not a text file"),
        (b"id,load\n" + b"a,1\n" * 20_002, "more than 20000 lines"),
        (b"x" * 1_100_000, "larger than 1024 KB"),
    ],
    ids=range(8),
)
def test_tables_that_make_no_sense_are_refused_with_a_sentence(data: bytes, says: str) -> None:
    with pytest.raises((MarksUnreadable, RosterUnreadable), match=says):
        parse_marks(data, RUBRIC, MarkMapping())


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        (b"work = ", "The mapping cannot be read"),
        (b"\xff", "The mapping cannot be read"),
        (b'colour = "red"', "colour"),
        (b'[criteria]\nQ1 = "none"', "'none', which the rubric does not have. It has: load, think"),
        (b'work = "nobody"', "the column 'nobody', which the table does not have"),
    ],
    ids=range(5),
)
def test_mappings_that_lead_nowhere_are_refused(mapping: bytes, says: str) -> None:
    with pytest.raises(MarksUnreadable, match=says):
        parsed("id,load\nanna,1\n", read_mapping(mapping))
