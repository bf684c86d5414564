"""Requests of a plan that is being made; equal questions share one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from grading.config.settings import Limits
from grading.domain.document import Document, Location
from grading.execution.path_repair import Repair, places_of, repair
from grading.execution.values import Code, CodeLanguage, Expression, Request, TestFile, Work

MAX_EXPRESSIONS = 1_000
"""Of one execution."""


@dataclass(frozen=True)
class Slot:
    """Where an answer will be: in an execution, the number of an expression or the name of a variable."""

    execution: str
    number: int | None = None
    variable: str = ""


@dataclass
class _Draft:
    role: str
    work: Work
    files: dict[str, str]
    repairs: tuple[Repair, ...] = ()
    as_main: bool = False
    variables: dict[str, None] = field(default_factory=dict)
    expressions: dict[tuple[str, float], int] = field(default_factory=dict)
    tests: dict[str, TestFile] = field(default_factory=dict)


class Drafts:
    """Executions by key, growing; `files` lie beside the work, those below `data/` beside everything."""

    def __init__(self, limits: Limits, files: Mapping[str, str], solution_files: Mapping[str, str]) -> None:
        self._limits = limits
        self._data = {path: digest for path, digest in files.items() if path.startswith("data/")}
        self._files = dict(files)
        self._solution_files = {**solution_files, **self._data}
        self._drafts: dict[str, _Draft] = {}

    def work(
        self, role: str, document: Document, language: CodeLanguage, module: str, prelude: str, source: str
    ) -> str:
        """The key of a document's execution; `prelude` names the code `source` that runs before it."""
        key = f"{role}:{document.path}" + (f"#{prelude}" if prelude else "")
        if key not in self._drafts:
            files = self._files if role == "work" else self._solution_files
            files = {path: digest for path, digest in files.items() if path != document.path}
            work, repairs = _work(document, language, source, files)
            work = work.model_copy(update={"module": module})
            self._drafts[key] = _Draft(role, work, files, repairs if role == "work" else ())
        return key

    def expected(self, language: CodeLanguage, prelude: str, source: str) -> str:
        """The key of the execution in which expected values are evaluated."""
        key = f"expected:{language}" + (f"#{prelude}" if prelude else "")
        if key not in self._drafts:
            work = Work(language=language, prelude=source)
            self._drafts[key] = _Draft("expected", work, dict(self._data))
        return key

    def as_main(self, key: str) -> None:
        """The document runs as a program."""
        self._drafts[key].as_main = True

    def expression(self, key: str, code: str, seconds: float | None) -> Slot:
        """Where the value of an expression will be; nothing is there beyond MAX_EXPRESSIONS."""
        asked = self._drafts[key].expressions
        what = (code, seconds or Expression(code="").seconds)
        if what not in asked and len(asked) < MAX_EXPRESSIONS:
            asked[what] = len(asked)
        return Slot(key, asked.get(what))

    def variable(self, key: str, name: str) -> Slot:
        """Where the value of a variable will be."""
        self._drafts[key].variables[name] = None
        return Slot(key, variable=name)

    def test(self, key: str, file: TestFile) -> None:
        """A file of tests for an execution."""
        self._drafts[key].tests.setdefault(file.path, file)

    def requests(self) -> dict[str, Request]:
        """All executions as they are asked for."""
        return {
            key: Request(
                work=draft.work,
                files=draft.files,
                as_main=draft.as_main,
                variables=tuple(draft.variables),
                expressions=tuple(Expression(code=c, seconds=s) for c, s in draft.expressions),
                tests=tuple(draft.tests.values()),
                limits=self._limits,
            )
            for key, draft in self._drafts.items()
        }

    def repairs(self) -> tuple[Repair, ...]:
        """What was repaired in the submission, each once."""
        return tuple(dict.fromkeys(r for d in self._drafts.values() for r in d.repairs))

    def played(self, role: str) -> dict[str, str]:
        """Path of each document that runs as a program -> key of the first such execution."""
        found: dict[str, str] = {}
        for key, draft in self._drafts.items():
            if draft.role == role and (draft.as_main or draft.work.kind == "notebook"):
                found.setdefault(draft.work.document, key)
        return found


def _work(
    document: Document, language: CodeLanguage, prelude: str, files: Mapping[str, str]
) -> tuple[Work, tuple[Repair, ...]]:
    places = places_of(path.removeprefix("./") for path in files)
    cells: list[Code] = []
    repairs: list[Repair] = []
    for cell in document.cells:
        if cell.kind != "code" or cell.language != language or not cell.source.strip():
            continue
        source, changes = repair(cell.source, language, places)
        cells.append(Code(number=cell.number, source=source, first_line=cell.first_line))
        for line, was, now in changes:
            where = Location(document=document.path, cell=cell.number, line=cell.first_line + line - 1)
            repairs.append(Repair(location=where, was=was, now=now))
    chunks = document.kind == "notebook" or document.path.lower().endswith((".rmd", ".qmd"))
    kind = "notebook" if chunks else "script"
    work = Work.model_validate(
        {"document": document.path, "kind": kind, "language": language, "prelude": prelude, "cells": cells}
    )
    return work, tuple(repairs)
