"""One module more is one kind of check more: in rubrics, evidence, editor and catalogue."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask, g

from app.reports import executions
from app.web import rubric_texts
from grading.assignments.editor import form
from grading.checks import kinds
from grading.domain.check import KINDS, check_kinds
from grading.domain.errors import AssignmentError
from grading.domain.rubric import Rubric
from grading.domain.rubric_errors import check_rubric
from tests.unit.checks.samples import cell, notebook, outcome

MODULE = '''
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from grading.checks.context import Context, Finding
from grading.checks.kind import CheckKind
from grading.checks.scope import Scope
from grading.domain.messages import MessageType, define_message

SHORT = define_message("check.short_lines.found", "the longest line has %(longest)s characters")


class ShortLines(CheckKind):
    """Lines are not longer than this."""

    kind: Literal["short_lines"] = "short_lines"
    columns: int = Field(gt=0)
    forbidden: tuple[str, ...] = ()

    title: ClassVar[MessageType] = define_message("check.short_lines.title", "Short lines")
    about: ClassVar[MessageType] = define_message("check.short_lines.about", "No line is longer.")
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "columns": define_message("check.short_lines.columns", "Characters of a line"),
        "forbidden": define_message("check.short_lines.forbidden", "Patterns without these"),
    }
    usual_label: ClassVar[MessageType] = define_message("check.short_lines.label", "lines are short")
    pattern_keys: ClassVar[tuple[str, ...]] = ("forbidden",)

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        longest = max(len(line) for piece in scope.code for line in piece.cell.lines)
        return Finding(float(longest <= self.columns), SHORT(longest=longest))
'''


@pytest.fixture
def short_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "short_lines.py").write_text(MODULE, "utf-8")
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path)])
    _as_in_a_new_process()
    yield
    monkeypatch.undo()
    sys.modules.pop(f"{KINDS}.short_lines", None)
    _as_in_a_new_process()


def _as_in_a_new_process() -> None:
    for cached in (check_kinds, rubric_texts._field_words, rubric_texts._field_hints, form.shapes):
        cached.cache_clear()


def _rubric(**fields: object) -> Rubric:
    check = {"kind": "short_lines", **fields}
    nested = {"kind": "alternatives", "checks": [check]}
    return Rubric.model_validate(
        {"criteria": [{"id": "style", "title": "Style", "points": 2, "checks": [check, nested]}]}
    )


@pytest.mark.usefixtures("short_lines")
def test_rubrics_hold_it_and_name_its_mistakes() -> None:
    rubric = _rubric(columns=80)
    assert Rubric.model_validate_json(rubric.model_dump_json()) == rubric
    found, problems = form.validated(
        {"criteria": [{"id": "a", "title": "A", "points": 1, "checks": [{"kind": "short_lines"}]}]}, ()
    )
    assert found is None
    assert problems[0].place == "criteria.0.checks.0.columns"
    with pytest.raises(AssignmentError, match=r"criteria\[0\]\.checks\[0\]\.forbidden\[0\]: "):
        check_rubric(_rubric(columns=80, forbidden=["("]))


@pytest.mark.usefixtures("short_lines")
def test_it_is_evaluated_and_said() -> None:
    first, nested = _rubric(columns=8).criteria[0].checks
    for check, earned in ((first, 0.0), (nested, 0.0), (_rubric(columns=80).criteria[0].checks[0], 1.0)):
        kept = outcome(check, notebook(cell("total <- sum(x)")))
        assert kept.earned == earned
        assert (kept.message, kept.code) == (
            "the longest line has 15 characters",
            "check.short_lines.found",
        )
        assert kept.params == {"longest": 15}
    assert outcome(first, notebook(cell("x"))).label == "lines are short"
    with Flask(__name__).test_request_context():
        g.language = "de"
        assert (
            executions.outcome_text(outcome(first, notebook(cell("x"))))
            == "the longest line has 1 characters"
        )


@pytest.mark.usefixtures("short_lines")
def test_the_editor_has_a_form_for_it() -> None:
    raw = form.to_raw(_rubric(columns=80))
    assert form.read(raw, ("analysis",))[0] == _rubric(columns=80)
    own = [shape.name for shape in form.shapes(check_kinds()["short_lines"])][:2]
    assert own == ["columns", "forbidden"]
    with Flask(__name__).test_request_context():
        g.language = "en"
        assert rubric_texts.kind_words()["short_lines"] == "Short lines"
        assert rubric_texts.about_kind("short_lines") == "No line is longer."
        assert rubric_texts.field_word("columns") == "Characters of a line"


def test_without_the_module_there_is_none() -> None:
    assert "short_lines" not in check_kinds()
