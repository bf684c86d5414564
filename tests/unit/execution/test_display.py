"""What running a submission showed, for people and machines: bounded, storable, the student's work only."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from flask import Flask, g

from app.reports.executions import FOLDED_CHARS, LONGEST, SHOWN_FAILED, listed_tests, ran_cell, ran_document
from grading.checks.kinds.runs import RunsClean
from grading.checks.test_outcomes import NOT_REACHED, kept
from grading.config.settings import Limits
from grading.documents import Identity, pseudonymise
from grading.domain.document import Cell, Document, Location, Output
from grading.domain.evidence import CheckOutcome, CriterionEvidence, Evidence, TestOutcome
from grading.domain.rubric import Criterion, Rubric
from grading.execution.display import (
    LEFT_OUT,
    MOST_BYTES,
    PLAYED_CHARS,
    ShownDocument,
    ShownExecution,
    add_played,
    shown,
)
from grading.execution.path_repair import Repair
from grading.execution.plan import Plan, make_plan
from grading.execution.values import MEMORY, Code, Execution, Played, Request, Work
from workers.server.pseudonyms import hide_names


def out(text: str = "", **more: Any) -> Output:
    return Output(kind="stream", text=text, **more)


def plan(*paths: str) -> Plan:
    repairs = tuple(
        Repair(location=Location(document=path, line=1), was="C:/a.csv", now="data/a.csv") for path in paths
    )
    works = {path: f"work:{path}" for path in paths}
    run = Request(work=Work(language="python", cells=(Code(number=1, source="x"),)))
    return Plan(
        requests=MappingProxyType(dict.fromkeys(works.values(), run)),
        works=MappingProxyType(works),
        repairs=repairs,
    )


def played(number: int, *texts: str, **more: Any) -> Played:
    return Played(number=number, outputs=tuple(map(out, texts)), **{"state": "ran", **more})


def test_only_the_students_own_documents_are_in_it() -> None:
    expected = Execution(end="finished", cells=(played(1, "secret"),), seconds=4)
    mine = Execution(end="finished", cells=(played(1, "mine"),), sandbox="bubblewrap", image="i", seconds=2)
    made = shown(plan("a.py"), {"work:a.py": mine, "expected:python": expected, "solution:s.py": expected})
    assert list(made.documents) == ["a.py"]
    assert "secret" not in made.model_dump_json()
    assert (made.sandbox, made.image, made.seconds) == ("bubblewrap", "i", 10)
    assert made.documents["a.py"].repairs[0].was == "C:/a.csv"
    assert ShownExecution.model_validate(json.loads(made.model_dump_json())) == made


def test_a_flood_of_output_is_bounded_and_said() -> None:
    cells = tuple(played(n, "é" * 100_000, "b" * 100_000) for n in range(1, 200))
    execution = Execution(end="output", reason="It printed too much.", cells=cells)
    made = shown(plan("a.py", "b.py"), {"work:a.py": execution, "work:b.py": execution})
    texts = [o.text for d in made.documents.values() for c in d.cells for o in c.outputs]
    assert all(text.endswith(LEFT_OUT) for text in texts)
    noted = len(f"\n{LEFT_OUT}".encode())
    assert sum(len(text.encode()) for text in texts) - noted * len(texts) <= MOST_BYTES
    assert len(made.model_dump_json().encode()) < 2 * MOST_BYTES
    assert {c.state for d in made.documents.values() for c in d.cells} == {"ran"}


def test_what_no_database_takes_is_replaced() -> None:
    execution = Execution(
        end="left", reason="a\0b", cells=(played(1, "x\0y\ud800", error="e\0\nf", state="failed"),)
    )
    raw = shown(plan("a.py"), {"work:a.py": execution}).model_dump_json()
    assert "\\u0000" not in raw
    raw.encode()
    assert shown(plan("a.py"), {"work:a.py": execution}).documents["a.py"].cells[0].error == "e\ufffd f"


def test_of_an_error_only_its_line_is_kept() -> None:
    trace = Output(kind="error", text="Traceback\n  /grader/prelude.py\nKeyError: 'x'")
    cell = Played(number=1, state="failed", outputs=(out("1"), trace), error="KeyError: 'x'", line=3)
    made = shown(plan("a.py"), {"work:a.py": Execution(end="finished", cells=(cell,))}).documents["a.py"]
    assert made.cells[0].outputs == (out("1"),)
    assert (made.cells[0].error, made.cells[0].line) == ("KeyError: 'x'", 3)


def test_nothing_is_said_of_cells_where_nothing_was_run() -> None:
    execution = Execution(end="not run", reason="no sandbox", cells=(Played(number=1, state="not reached"),))
    made = shown(plan("a.py"), {"work:a.py": execution})
    assert made.documents["a.py"].cells == ()
    assert add_played([notebook(code(1))], made) == (notebook(code(1)),)


def test_a_document_without_an_execution_has_no_entry() -> None:
    assert shown(plan("a.py"), {}).documents == {}


def notebook(*cells: Cell) -> Document:
    return Document(path="a.ipynb", kind="notebook", language="python", cells=cells)


def code(number: int, **more: Any) -> Cell:
    return Cell(number=number, kind="code", source="x", language="python", added=(1,), **more)


def execution(*cells: Played, **more: Any) -> ShownExecution:
    document = ShownDocument(path="a.ipynb", **{"end": "finished", "cells": cells, **more})
    return ShownExecution(documents={"a.ipynb": document})


def filled(cell: Cell, one: Played, **more: Any) -> tuple[Output, ...]:
    (document,) = add_played([notebook(cell)], execution(one, **more))
    return document.cells[0].played


def test_machines_get_outputs_where_none_were_submitted() -> None:
    assert filled(code(1), played(1, "42")) == (out("42"),)
    assert filled(code(1, outputs=(out("41"),)), played(1, "42")) == ()
    assert filled(code(1), played(1)) == (out(),)
    assert filled(code(1, execution_count=3), played(1)) == ()
    (failed,) = filled(code(1), played(1, state="failed", error="NameError: x"))
    assert (failed.kind, failed.text) == ("error", "NameError: x")
    (late,) = filled(code(1), played(1, state="too long"))
    assert late.kind == "error"
    assert "too long" in late.text
    assert filled(code(1), played(1, state="not reached")) == ()
    long = filled(code(1), played(1, "x" * 9_000, "y"))
    assert len(long) == 1
    assert long[0].text == "x" * PLAYED_CHARS + f"\n{LEFT_OUT}"


def test_what_fails_for_want_of_something_here_is_not_told_to_machines() -> None:
    assert filled(code(1), played(1, state="failed", error="NameError"), excused=(1,)) == ()
    assert filled(code(1), played(1, "ok"), excused=(2,)) == (out("ok"),)
    seen = ran_cell(code(1), played(1, state="failed", error="E"), noted=False, excused=True)
    assert seen is not None
    assert "may be missing here" in seen.words


def test_cells_after_a_missing_package_or_file_are_excused() -> None:
    source = [code(n).model_copy(update={"source": f"x{n}"}) for n in (1, 2, 3)]
    rubric = Rubric(criteria=(Criterion(id="c", title="C", points=1, checks=(RunsClean(),)),))
    made = make_plan([notebook(*source)], rubric, (), files={}, tests={}, limits=Limits())
    cells = (
        played(1),
        played(2, state="failed", error="FileNotFoundError: No such file or directory: 'a.csv'"),
        played(3, state="failed", error="NameError: name 'a' is not defined"),
    )
    found = shown(made, dict.fromkeys(made.requests, Execution(end="finished", cells=cells)))
    assert found.documents["a.ipynb"].excused == (2, 3)


def test_without_an_execution_documents_and_their_json_stay_as_they_were() -> None:
    document = notebook(code(1))
    assert add_played([document], None) == (document,)
    assert add_played([document], ShownExecution()) == (document,)
    assert "played" not in document.model_dump_json()
    assert "tests" not in CheckOutcome(check="1", label="a", earned=1).model_dump_json()


def test_names_in_outputs_of_the_run_stay_here() -> None:
    (document,) = add_played([notebook(code(1))], execution(played(1, "Hello Anna Weber")))
    (sent,) = pseudonymise([document], Identity(names=("Anna Weber",)))
    assert sent.cells[0].played[0].text == "Hello [student]"


def test_names_in_what_tests_saw_stay_here() -> None:
    who = "Hello Anna Weber"
    test = TestOutcome(passed=False, name=who, input=who, expected=who, got=who, message=who)
    outcome = CheckOutcome(check="1", label="", earned=0, message=who, tests=(test,))
    found = Evidence(criteria=(CriterionEvidence(criterion="c", share=0, outcomes=(outcome,)),))
    sent = hide_names(found, Identity(names=("Anna Weber",)), {})
    assert "Weber" not in sent.model_dump_json()
    assert sent.criteria[0].outcomes[0].tests[0].got == "Hello [student]"


@pytest.mark.parametrize(
    ("cell", "one", "words"),
    [
        (code(1), played(1, "42"), "When we ran your work:"),
        (code(1), played(1), "produced no output"),
        (code(1, outputs=(out("<A at 0x1f>\n"),)), played(1, "<A  at 0x2f>"), None),
        (code(1, outputs=(out("41"),)), played(1, "42"), "When we ran your work:"),
        (code(1, execution_count=2), played(1), None),
        (code(1), played(1, state="failed", error="NameError: x"), "with an error: NameError: x"),
        (code(1), played(1, state="too long"), "reached the time limit"),
        (code(1), played(1, state="not reached"), "Not reached"),
        (code(1, outputs=(Output(kind="error", text="E"),)), played(1), "without errors"),
        (code(1), None, None),
    ],
)
def test_a_cells_run_is_shown_where_it_says_more(cell: Cell, one: Played | None, words: str | None) -> None:
    seen = ran_cell(cell, one, noted=False)
    assert (seen is None) == (words is None)
    assert words is None or (seen is not None and words in seen.words)


def test_how_a_documents_run_went_in_sentences() -> None:
    def said(staff: bool = False, **more: Any) -> str:
        values = {"end": "finished", "cells": (played(1), played(2, state="failed")), **more}
        return " ".join(ran_document(ShownDocument(path="a.py", **values), staff))

    assert said() == "When we ran your work, 1 of 2 code cells ran without errors."
    assert "stopped after 120 s" in said(end="too long", reason="It was stopped after 120 s.")
    assert "polars" in said(missing=("polars",))
    assert "bwrap" not in said(end="not run", reason="bwrap is missing")
    assert "bwrap" in said(staff=True, end="not run", reason="bwrap is missing")
    assert said(cells=(played(1),)) == "When we ran your work, it finished without errors."
    assert ran_document(None, staff=True) == ()


def test_why_a_run_was_stopped_in_the_readers_language() -> None:
    clause = MEMORY(size=512)
    ended = Execution(
        end="memory", reason=f"{clause}.", code=clause.code, params=clause.params, cells=(played(1),)
    )
    made = ShownExecution.model_validate_json(shown(plan("a.py"), {"work:a.py": ended}).model_dump_json())

    def said(language: str, document: ShownDocument) -> str:
        with Flask("pages").test_request_context():
            g.language = language
            return ran_document(document, staff=False)[-1]

    assert said("en", made.documents["a.py"]) == "It used more than the 512 MiB of memory that it may."
    assert said("de", made.documents["a.py"]) == (
        "Das Programm belegte mehr als die erlaubten 512 MiB Arbeitsspeicher."
    )
    stored = '{"path": "a.py", "end": "memory", "reason": "It used too much. It ended."}'
    assert said("de", ShownDocument.model_validate_json(stored)) == "It used too much. It ended."


def test_why_a_test_failed_in_the_readers_language() -> None:
    def reason(**why: Any) -> str:
        test = TestOutcome(name="t", passed=False, **why)
        with Flask("pages").test_request_context():
            g.language = "de"
            found = listed_tests(CheckOutcome(check="1", label="", earned=0, tests=(test,)), staff=False)
            assert found is not None
            return found.failed[0].parts[-1].text

    assert reason(**kept(NOT_REACHED())) == "wurde nicht ausgeführt"
    assert reason(message="was not reached") == "was not reached"


def test_many_and_long_tests_are_bounded() -> None:
    tests = tuple(TestOutcome(name=f"t{n}", passed=n % 2 == 0, got="x" * 9_000) for n in range(1_000))
    found = listed_tests(CheckOutcome(check="1", label="", earned=0.5, tests=tests), staff=True)
    assert found is not None
    assert found.sentence == "500 of 1,000 tests passed"
    assert (len(found.failed), found.more_failed) == (SHOWN_FAILED, 500 - SHOWN_FAILED)
    part = found.failed[0].parts[0]
    assert part.folded
    assert FOLDED_CHARS < len(part.text) < LONGEST + 100
    assert listed_tests(CheckOutcome(check="1", label="", earned=0.5), staff=True) is None
