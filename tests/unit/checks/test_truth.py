"""What checks and flags say of a work is true of it: no errors, nothing added, what a pattern asks for."""

from __future__ import annotations

import json

import pytest

from grading.checks import collect
from grading.checks.kinds.code import CodeMatches
from grading.checks.kinds.outputs import NoErrors
from grading.checks.kinds.prose import Words
from grading.checks.kinds.runs import RunsClean
from grading.checks.upload_notes import reading
from grading.documents import UploadedFile, read, set_apart
from grading.domain.document import Document
from grading.domain.evidence import Evidence
from grading.domain.patterns import readable
from tests.unit.checks.samples import cell, notebook, script, shown
from tests.unit.engines.test_rules_languages import analysis, asked, feedback
from tests.unit.execution.samples import collected, rubric_of, run_outcome
from workers.machine.engines.rules.facts import Facts
from workers.machine.engines.rules.findings import remarks

PLAIN = rubric_of()


def submitted(name: str, content: str, starter: str | None = None) -> tuple[Document, ...]:
    documents = read([UploadedFile(name, content.encode())]).documents
    given = read([UploadedFile(name, starter.encode())]).documents if starter is not None else ()
    return set_apart(documents, given)


def flags(documents: tuple[Document, ...]) -> list[tuple[str, str]]:
    return [(flag.code, flag.message) for flag in collect(documents, PLAIN).flags]


@pytest.mark.parametrize("content", ["(" * 5_000, "(\n" * 5_000, "x = (\n{[(\n"])
def test_brackets_without_a_starter_are_code_that_does_not_parse(content: str) -> None:
    documents = submitted("work.py", content)
    ((code, message),) = flags(documents)
    assert (code, "has a syntax error" in message) == ("parse", True)
    assert [one.unchanged for one in reading(documents, (), PLAIN).documents] == [False]


@pytest.mark.parametrize(
    ("content", "starter", "message"),
    [
        ("x = 1\n", "x = 1\n", "Nothing was added to the starter."),
        ("x = 1\n()\n", "x = 1\n", "Nothing was added to the starter."),
        (
            "# Name: somebody\n()\n",
            None,
            "The submission contains only brackets, placeholders or lines such as a name.",
        ),
    ],
)
def test_untouched_says_why_nothing_counts(content: str, starter: str | None, message: str) -> None:
    assert flags(submitted("work.py", content, starter)) == [("untouched", message)]


def test_untouched_is_said_of_an_empty_notebook() -> None:
    assert flags((notebook(cell("", added=[])),)) == [("untouched", "The submission is empty.")]


def test_the_rules_engine_names_no_starter_where_there_is_none() -> None:
    documents = submitted("work.py", "(" * 50)
    outputs = (analysis(asked("analysis", documents)), feedback(asked("feedback", documents)))
    assert "starter" not in " ".join(json.dumps(one.model_dump(), default=str) for one in outputs)


def test_no_errors_is_not_met_where_the_schools_run_failed() -> None:
    broken = notebook(
        cell("x = 1", language="python", place="a"), cell("y = [][1]", language="python", place="b"),
        language="python",
    )  # fmt: skip
    found = collected(rubric_of(NoErrors(), RunsClean()), broken)
    outcomes = found.criteria[0].outcomes
    assert outcomes[0].earned == 0.5
    assert "stops with an error when it is run" in outcomes[0].message


def test_errors_of_given_cells_are_told_from_those_of_the_students_code() -> None:
    given = cell("stop()", added=[], outputs=shown("x")).model_copy(
        update={"outputs": (shown("x")[0].model_copy(update={"kind": "error", "text": "boom"}),)}
    )
    work = notebook(cell("x <- 1", count=1), given)
    assert run_outcome(NoErrors(), work).message == "no errors in your code"
    titles = [one.title for one in remarks(Facts.of(asked("analysis", (work,), evidence=Evidence())))]
    assert "Cell 2 of the starter ends with an error" in titles


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"\bread\.csv\s*\(", "“read.csv(”"),
        (r"Task\s*1\b", "“Task 1”"),
        ("na.rm", "“na.rm”"),
        (r"(?i)total\s*=\s*\d+", r"“total\s*=\s*\d+”"),
        (r"C:\\dir\\b", r"“C:\dir\b”"),
        ("[A-Z]+", "“[A-Z]+”"),
        (r"\w+$", r"“\w+$”"),
    ],
)
def test_a_pattern_is_said_in_words_or_as_it_was_written(pattern: str, said: str) -> None:
    assert readable(pattern) == said


def test_messages_keep_the_backslashes_of_patterns() -> None:
    found = run_outcome(CodeMatches(all_of=(r"\d+\s+rows",)), script("x <- 1"))
    assert found.message == r"“\d+\s+rows” is missing"
    placed = run_outcome(CodeMatches(all_of=("x",), where=r"Task \d+"), notebook(cell("x", place="Other")))
    assert placed.message == r"no cell or heading matches “Task \d+”"


def test_the_reading_before_handing_in_knows_classes_comments_and_code_that_does_not_parse() -> None:
    source = "/** A shape. */\nclass Shape {\n  // why\n  int f() { return 1; }\n  int g( { }\n}\n"
    (one,) = reading(submitted("Shape.java", source), (), PLAIN).documents
    assert (one.classes, one.functions, one.comments, one.unparsed) == (1, 2, 2, ("line 5",))
    (sql,) = reading(submitted("a.sql", "SELEC x FROM;\n"), (), PLAIN).documents
    assert sql.unparsed == ()  # dialects differ


def test_code_that_was_commented_out_is_no_answer_in_words() -> None:
    line = "// total = first.price() + second.price() + third.price() + fourth.price() + fifth.price();\n"
    code = script(f"{line * 3}int f() {{ return 1; }}\n", path="A.java", language="java")
    assert run_outcome(Words(at_least=20), code).message == "no answer was written here"
    answer = (
        "// I chose the list because it keeps the order in which all parcels came, on which prices depend.\n"
    )
    said = script(f"{answer}int f() {{ return 1; }}\n", path="A.java", language="java")
    assert run_outcome(Words(at_least=10), said).earned == 1.0
