"""Rubric versions as values, kept in memory: their rows never change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from grading.model import Document, Material
from grading.rubric import Rubric
from grading.store.tables import Assignment, RubricVersion

DOCUMENTS = TypeAdapter(tuple[Document, ...])
KEPT = 64


@dataclass(frozen=True)
class Version:
    """A rubric version: what is graded, against what, and what each stage's class shares."""

    rubric: Rubric
    starter: tuple[Document, ...]
    solution: tuple[Document, ...]
    title: str
    task: str
    instructions: Mapping[str, str]
    shown_solution: str

    def material(self, stage: str) -> Material:
        """What the whole class shares in a stage's system message."""
        return Material(
            title=self.title,
            task=self.task,
            instructions=self.instructions.get(stage, ""),
            starter=as_text(self.starter),
            solution=self.shown_solution,
        )


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
    solution = DOCUMENTS.validate_python(row.solution)
    return Version(
        rubric=Rubric.model_validate(row.rubric),
        starter=DOCUMENTS.validate_python(row.starter),
        solution=solution,
        title=session.get_one(Assignment, row.assignment_id).title,
        task=row.task,
        instructions={stage: str(words) for stage, words in row.instructions.items()},
        shown_solution=as_text(solution) if row.share_solution else "",
    )


def as_text(documents: Iterable[Document]) -> str:
    """Documents as plain text, cell by cell, without outputs."""
    parts = []
    for document in documents:
        parts.append(f"# {document.path}")
        for cell in document.cells:
            parts.append(f"[cell {cell.number}, {cell.kind}]\n{cell.source}")
    return "\n\n".join(parts)
