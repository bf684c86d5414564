"""A hand-in that nobody handed in, as large as usual ones: machines measure their speed with it."""

from __future__ import annotations

from grading.jobs import Job, Material
from grading.model import Cell, Document, Evidence
from grading.rubric import Criterion, Rubric
from workers.machine.stages.table import STAGES

SHARED_CHARS = 11_000
"""Of task and solution: with the rest of the prompt some 4,000 tokens that a class shares."""
OWN_CHARS = 3_000
"""Of the student's work: with numbers of lines some 1,000 tokens."""
_CODE = """\
sales <- read.csv("sales.csv", stringsAsFactors = TRUE)
by_region <- aggregate(revenue ~ region, data = sales, FUN = mean)
model <- lm(revenue ~ price + region, data = sales)
summary(model)$r.squared
"""
_PROSE = """\
The revenue of a region is described by its mean and its median. Say which of them an outlier moves, fit a
linear model of revenue on price and region, and explain what its coefficients mean for the business.
"""


def made_up(stage: str, number: int, max_output_tokens: int, budget_s: float) -> Job:
    """A job of this stage; those with other numbers share all but what the student wrote."""
    name = f"made-up-{number}"
    return Job(
        run_id=f"{name}-{stage}",
        round_id=name,
        stage=stage,
        material=Material(
            title="Regions", task=_long(_PROSE, SHARED_CHARS // 2), solution=_long(_CODE, SHARED_CHARS // 2)
        ),
        rubric=Rubric(criteria=tuple(_criterion(s, n) for s in STAGES for n in (1, 2, 3))),
        documents=(_document(number),),
        evidence=Evidence(),
        nonce=name,
        budget_s=budget_s,
        max_output_tokens=max_output_tokens,
    )


def _criterion(stage: str, number: int) -> Criterion:
    return Criterion(id=f"{stage}-{number}", title=f"Task {number}", stage=stage, points=1)


def _document(number: int) -> Document:
    source = _long(f"# Hand-in {number}\n{_CODE}", OWN_CHARS)
    lines = tuple(range(1, source.count("\n") + 2))
    cell = Cell(number=1, kind="code", source=source, language="r", added=lines)
    return Document(path="made-up.R", kind="script", language="r", cells=(cell,))


def _long(text: str, chars: int) -> str:
    """The text again and again, as the parts of a task follow each other."""
    parts = (f"{part}. {text}" for part in range(1, chars // len(text) + 1))
    return "\n".join(parts)
