"""What every check may ask: a minimum of own lines, what the starter gives, one question of a cell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.checks.kinds.code import Avoids, Uses
from grading.checks.kinds.combined import Alternatives, Ladder, Rung
from grading.checks.kinds.outputs import AllExecuted, NoErrors, OutputMatches
from grading.checks.kinds.prose import Words
from grading.checks.question_parts import parts
from grading.domain.check import Check
from grading.domain.document import Document
from grading.domain.rubric import Rubric
from tests.unit.checks.samples import cell, notebook, outcome, script, shown

GIVEN = "# Task 1: look at it\ndim(orders)"
TWO = """# TODO: Load the orders
orders <- read_csv("orders.csv")

# TODO: Load the customers
customers <- read_excel("customers.xlsx")
"""


@pytest.mark.parametrize(
    "check", [AllExecuted(own_lines=3), NoErrors(own_lines=3), Avoids(names=("f",), own_lines=3)]
)
def test_a_check_with_own_lines_earns_nothing_for_a_single_line(check: Check) -> None:
    one = notebook(cell("x <- 1\n# a comment\n\n# another", count=1))
    found = outcome(check, one)
    assert (found.earned, found.message) == (0.0, "needs at least 3 lines of your own code; there is 1")
    three = notebook(cell("x <- 1\ny <- 2\nz <- 3", count=1))
    assert outcome(check, three).earned == 1


def test_own_lines_are_counted_in_the_place_of_the_check_only() -> None:
    work = notebook(
        cell("a <- 1\nb <- 2\nc <- 3", place="Task 1", count=1), cell("d <- 4", place="Task 2", count=2)
    )
    assert outcome(AllExecuted(own_lines=3, where="Task 1"), work).earned == 1
    assert outcome(AllExecuted(own_lines=3, where="Task 2"), work).earned == 0
    assert outcome(AllExecuted(own_lines=4), work).earned == 1


def test_own_lines_hold_for_the_best_of_several_too() -> None:
    check = Alternatives(checks=(NoErrors(),), own_lines=2)
    assert outcome(check, notebook(cell("x <- 1"))).earned == 0
    assert outcome(check, notebook(cell("x <- 1\ny <- 2"))).earned == 1


def test_part_and_given_of_a_combined_check_hold_for_those_in_it() -> None:
    work = notebook(cell(TWO))
    inside = Uses(all_of=("read_excel",))
    for part, earned in (("Load the orders", 0), ("Load the customers", 1)):
        assert outcome(Alternatives(checks=(inside,), part=part), work).earned == earned
        assert outcome(Ladder(rungs=(Rung(when=(inside,), credit=1),), part=part), work).earned == earned
    ran = notebook(cell(GIVEN, added=(), count=1), cell("str(orders)", added=()))
    assert outcome(Alternatives(checks=(AllExecuted(),), given=True), ran).earned == 0.5
    assert outcome(Ladder(rungs=(Rung(when=(NoErrors(),), credit=1),), given=True), ran).earned == 1


def test_what_the_template_gives_counts_where_it_was_run() -> None:
    ran = notebook(cell(GIVEN, added=(), count=1, outputs=shown("[1] 12 4")))
    idle = notebook(cell(GIVEN, added=()))
    for check in (AllExecuted(given=True), NoErrors(given=True), Uses(all_of=("dim",), given=True)):
        assert outcome(check, ran).earned == 1
        assert outcome(check, idle).earned == 0
        assert outcome(check.model_copy(update={"given": False}), ran).earned == 0
    assert outcome(OutputMatches(all_of=("12 4",), given=True), ran).earned == 1
    assert outcome(NoErrors(given=True), idle).message == "nothing was added or run here"


def test_with_what_is_given_a_cell_that_was_not_run_is_missing_from_all_executed() -> None:
    work = notebook(cell(GIVEN, added=(), count=1), cell("str(orders)", added=()))
    found = outcome(AllExecuted(given=True), work)
    assert (found.earned, found.message) == (0.5, "1 of 2 code cells were run before the submission")


def test_what_is_given_is_no_work_of_ones_own() -> None:
    work = notebook(cell(GIVEN, added=(), count=1))
    assert outcome(AllExecuted(given=True, own_lines=1), work).earned == 0


def test_part_is_one_question_of_several_in_a_cell() -> None:
    work = notebook(cell(TWO))
    orders, customers = "Load the orders", "Load the customers"
    assert outcome(Uses(all_of=("read_csv",), part=orders), work).earned == 1
    assert outcome(Uses(all_of=("read_csv",), part=customers), work).earned == 0
    assert outcome(Uses(all_of=("read_excel",), part=customers), work).earned == 1
    assert outcome(Uses(all_of=("read_excel",), part=orders), work).earned == 0
    assert outcome(Uses(all_of=("read_csv",), part="Load the weather"), work).message == (
        "no comment line matches “Load the weather”"
    )


def test_part_within_the_place_of_where() -> None:
    work = notebook(cell(TWO, place="Task 1"), cell("# TODO: Load the orders\nx <- 1", place="Task 2"))
    check = Uses(all_of=("read_csv",), part="Load the orders")
    assert outcome(check, work, where="Task 1").earned == 1
    assert outcome(check, work, where="Task 2").earned == 0


def test_part_of_a_section_of_a_script() -> None:
    work = script("# Task 1\n# a) first\nf(x)\n# b) second\ng(x)\n# Task 2\n# a) third\nh(x)")
    where = r"Task 1\b"
    assert outcome(Uses(all_of=("f",), part=r"^a\)", where=where), work).earned == 1
    assert outcome(Uses(all_of=("g",), part=r"^a\)", where=where), work).earned == 0
    assert outcome(Uses(all_of=("h",), part=r"^a\)", where=where), work).earned == 0


def test_part_of_an_answer_in_words() -> None:
    text = "**6.1** Why?\n\nBecause blanks make two of one.\n\n**6.2** And then?\n\nNothing."
    work = notebook(cell(text, kind="markdown"))
    assert outcome(Words(at_least=8, part=r"^6\.1"), work).earned == 1
    assert outcome(Words(at_least=8, part=r"^6\.2"), work).earned == pytest.approx(4 / 8)


def test_an_answer_in_a_part_of_a_script_without_headings_counts() -> None:
    work = script(
        "# a) why\n# "
        + "blanks make two names of one and sums are wrong then " * 2
        + "\nf(x)\n# b) how\ng(x)"
    )
    assert outcome(Words(at_least=10, part=r"^a\)"), work, where="Task 1").earned == 1
    assert outcome(Words(at_least=10, part=r"^b\)"), work, where="Task 1").earned == 0


def test_a_cell_without_any_such_comment_counts_as_a_whole_where_a_place_is_named() -> None:
    bare = notebook(cell("orders <- read_csv('a')", place="Task 1"))
    check = Uses(all_of=("read_csv",), part="Load the orders")
    assert outcome(check, bare, where="Task 1").earned == 1
    assert outcome(check, bare).earned == 0


@pytest.mark.parametrize(
    ("source", "pattern", "expected"),
    [
        ("# Question 2.1: a\nx\n# Question 2.2: b\ny", r"2\.1", [(1, 2)]),
        ("# Question 2.1: a\nx\n# Question 3\ny", r"2\.1", [(1, 2)]),
        ("# Question 2: a\nx\n# Question 2.1: b\ny", r"Question 2:", [(1, 4)]),
        ("# Question 2: a\n# 1. select\nx\n# 2. sort\ny", "Question 2", [(1, 5)]),
        ("# Step 1: a\n\n\n# Step 2: b\ny", "Step 1", [(1, 3)]),
        ("# TODO: Group\n# TODO: Sort\nx", "Group", [(1, 3)]),
        ("# TODO: Group\n# TODO: Sort\nx", "Sort", [(2, 3)]),
        ("# Sort upwards\nx\n# Show\ny\n# Sort downwards\nz", "upwards", [(1, 4)]),
        ("# TODO: a\nx\n# Task 2.1\ny", "TODO: a", [(1, 2)]),
        ("# a) one\nx\n# b) two\ny\n# a) again\nz", r"^a\)", [(1, 2), (5, 6)]),
        ("x <- '# Task 1'\ny", "Task 1", []),
        ("text <- '\n# Task 1: no comment\n'\n", "Task 1", []),
    ],
)
def test_where_a_part_begins_and_ends(source: str, pattern: str, expected: list[tuple[int, int]]) -> None:
    (piece,) = outcome_pieces(notebook(cell(source)))
    assert [(one.first, one.last) for one in parts(piece, pattern)] == expected


def outcome_pieces(document: Document):  # type: ignore[no-untyped-def]
    from grading.checks.scope import Scopes

    return Scopes([document]).find().pieces


@given(
    bodies=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    style=st.sampled_from(
        ["# Question {}: look", "# {}. look", "# Aufgabe {}", "# --- Task {} ---", "# Step {}) go"]
    ),
)
def test_parts_of_a_cell_have_each_line_once(bodies: list[int], style: str) -> None:
    lines, owner = [], []
    for number, count in enumerate(bodies, start=1):
        lines += [style.format(number), f"f{number}(x)", *[f"y{n} <- {n}" for n in range(count)]]
        owner += [number] * (2 + count)
    (piece,) = outcome_pieces(notebook(cell("\n".join(lines))))
    found = {}
    for number in range(1, len(bodies) + 1):
        (one,) = parts(piece, rf"\b{number}\b")
        for line in range(one.first, one.last + 1):
            assert line not in found
            found[line] = number
    assert [found[n] for n in range(1, len(lines) + 1)] == owner


def test_a_check_without_the_new_keys_is_stored_as_before() -> None:
    stored = Uses(all_of=("f",)).model_dump(mode="json")
    assert set(stored) == {"id", "label", "where", "files", "weight", "cap", "kind", "all_of", "any_of"}
    criterion = {
        "id": "a",
        "title": "A",
        "points": 1,
        "checks": [{"kind": "no_errors", "own_lines": 2, "part": "a"}],
    }
    rubric = Rubric.model_validate({"criteria": [criterion]})
    assert Rubric.model_validate(rubric.model_dump(mode="json")) == rubric
