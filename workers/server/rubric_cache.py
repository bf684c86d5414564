"""Rubric versions as values, kept in memory: their rows never change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from grading.domain.document import Document
from grading.domain.jobs import Material
from grading.domain.rubric import Rubric
from grading.domain.stages import stages_of
from grading.store import blobs
from grading.store.tables import Assignment, RubricVersion

DOCUMENTS = TypeAdapter(tuple[Document, ...])
KEPT = 64
UNSENT: Any = {"criteria": {"__all__": {"checks", "bonus"}}, "adjustments": True, "bonus_at_most": True}
"""Of a rubric: what only the server computes with."""


@dataclass(frozen=True)
class Version:
    """A rubric version: what is graded, against what, and what a class shares in each stage."""

    assignment_id: int
    rubric: Rubric
    rubric_json: Mapping[str, Any]
    """For jobs, without checks and adjustments."""
    starter: tuple[Document, ...]
    solution: tuple[Document, ...]
    materials: Mapping[str, Mapping[str, Any]]
    """stage -> Material as JSON"""
    data: Mapping[str, str]
    """Path -> SHA-256 of what lies beside the work when it is run."""
    tests: Mapping[str, str]
    """Path -> text of the files in `tests/`."""
    show_draft: bool = False
    """Students may see what is written while it is being written."""
    language: str = ""
    """The assignment's programming language, such as `r` or `python`."""

    def material(self, stage: str, examples: Sequence[Mapping[str, Any]] = ()) -> Mapping[str, Any]:
        """What the whole class shares in a stage's system message."""
        shared = self.materials[stage]
        return {**shared, "examples": examples} if examples else shared


class Versions:
    """A small cache by id; threads may read a row twice, never a wrong one."""

    def __init__(self) -> None:
        self._kept: dict[int, Version] = {}

    def get(self, session: Session, version_id: int) -> Version:
        """The version of that id."""
        found = self._kept.get(version_id)
        if found is None:
            found = _read(session, version_id)
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[version_id] = found
        return found


def _read(session: Session, version_id: int) -> Version:
    row = session.get_one(RubricVersion, version_id)
    rubric = Rubric.model_validate(row.rubric)
    starter, solution = DOCUMENTS.validate_python(row.starter), DOCUMENTS.validate_python(row.solution)
    assignment = session.get_one(Assignment, row.assignment_id)
    shared = Material(
        title=assignment.title,
        task=row.task,
        starter=as_text(starter),
        solution=as_text(solution) if row.share_solution else "",
        language=row.spoken_language,
    ).model_dump(mode="json")
    return Version(
        assignment_id=row.assignment_id,
        language=assignment.language,
        rubric=rubric,
        # machines judge by titles and levels; checks may be large and hold what hidden tests expect
        rubric_json=rubric.model_dump(mode="json", exclude=UNSENT),
        starter=starter,
        solution=solution,
        materials={
            stage: {**shared, "instructions": str(row.instructions.get(stage, ""))}
            for stage in stages_of(rubric)
        },
        data={path: name for path, name in row.files.items() if path.startswith("data/")},
        tests=_tests(session, row.files),
        show_draft=row.show_draft,
    )


def _tests(session: Session, files: Mapping[str, str]) -> dict[str, str]:
    paths = {path: name for path, name in files.items() if path.startswith("tests/")}
    found = blobs.load_blobs(session, paths.values()) if paths else {}
    return {path: found[name].decode("utf-8-sig", errors="replace") for path, name in paths.items()}


def as_text(documents: Iterable[Document]) -> str:
    """Documents as plain text, cell by cell, without outputs."""
    parts = []
    for document in documents:
        parts.append(f"# {document.path}")
        for cell in document.cells:
            parts.append(f"[cell {cell.number}, {cell.kind}]\n{cell.source}")
    return "\n\n".join(parts)
