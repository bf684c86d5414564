"""A first rubric by a model: the question, the schema of its answer, the rubric made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from grading.assignments.editor.text_lists import slug, unused
from grading.checks.kinds.code import Defines, Uses
from grading.checks.kinds.counts import Count
from grading.checks.kinds.prose import Words
from grading.checks.kinds.style import Comments, Documented
from grading.domain.base_value import Value
from grading.domain.check import Check
from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.domain.rubric import Criterion, Rubric
from grading.domain.stages import STAGES

ANSWER_NO_RUBRIC = define_message(
    "proposal.answer_no_rubric", "The model's answer is not a rubric. Try again, or start from the template."
)

MOST_CHARS = 24_000
"""Of task, starter and solution together; what is more is left out, and that is said."""
MAX_TOKENS = 3_000
MOST_CRITERIA = 10
NAME = 60
"""Characters of a name a check asks for."""
CUT = "\n[… the rest is left out]"


class NoProposal(GraderError):
    """The model's answer is not a rubric."""

    code = "no_proposal"
    default_message = define_message("error.no_proposal", "The model's answer is not a rubric.")


class ProposedCount(Value):
    """A function or operator as often as a model says the task asks for it."""

    name: str = Field(max_length=200)
    at_least: int = Field(ge=1, le=1_000)


class Proposed(Value):
    """One criterion as a model writes it."""

    title: str = Field(min_length=1, max_length=200)
    description: str = Field(default="", max_length=1_000)
    stage: str
    points: int = Field(ge=1, le=100)
    levels: tuple[str, ...] = Field(min_length=2, max_length=6)
    uses: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    counts: tuple[ProposedCount, ...] = Field(default=(), max_length=10)
    comments: int = Field(default=0, ge=0, le=200)
    documented: bool = False
    words: int = Field(default=0, ge=0, le=2_000)


class Answer(Value):
    """All of a model's answer."""

    criteria: tuple[Proposed, ...] = Field(min_length=1, max_length=2 * MOST_CRITERIA)


@dataclass(frozen=True)
class Question:
    """What a model is asked; `shortened` where not all of the material had room."""

    system: str
    user: str
    schema: dict[str, Any]
    shortened: bool = False


def question(task: str, starter: str, solution: str, stages: Sequence[str], language: str) -> Question:
    """Ask for a rubric for this task."""
    room, parts, shortened = MOST_CHARS, [], False
    for name, text in (("TASK", task), ("SOLUTION", solution), ("STARTER", starter)):
        if not text.strip():
            continue
        kept = text if len(text) <= room else text[: max(0, room - len(CUT))] + CUT
        shortened = shortened or kept is not text
        room -= min(len(text), room)
        parts.append(f"<{name}>\n{kept}\n</{name}>")
    wanted = "Write the rubric for this assignment now."
    return Question(
        _system(stages, language), "\n\n".join([*parts, wanted]), answer_schema(stages), shortened
    )


def _system(stages: Sequence[str], language: str) -> str:
    about = {stage: STAGES[stage].judges for stage in stages if stage in STAGES}
    listed = "; ".join(f"{stage} ({about[stage]})" if about.get(stage) else stage for stage in stages)
    return (
        "You help a teacher write a grading rubric for a programming assignment. The teacher will check and "
        "change what you write. Answer with JSON only.\n"
        f"Write 3 to {MOST_CRITERIA} criteria that cover the whole task and do not overlap. Each criterion "
        "has a short title, one sentence of description that a student understands, and whole points that "
        "say how much work it is. levels say what each level looks like, from the lowest (nothing usable) "
        f"to the highest (complete), in concrete words for this criterion. stage is one of: {listed}. "
        "uses names functions that a right answer must call, defines names variables it must create, both "
        "only where the task itself asks for them; else leave them empty. counts names functions or operators"
        " the task wants used so often; comments is the least number of comments it asks for, "
        "documented is true where it wants functions or classes described; else leave them empty, 0 and "
        "false. words is the least number of "
        f"words a written answer needs, 0 where none is asked for. Write titles and levels in {language}."
    )


def answer_schema(stages: Sequence[str]) -> dict[str, Any]:
    """What the answer is bound to: only what every engine can follow."""
    names = {"type": "array", "maxItems": 6, "items": {"type": "string", "maxLength": NAME}}
    count = _object(
        {
            "name": {"type": "string", "minLength": 1, "maxLength": NAME},
            "at_least": {"type": "integer", "minimum": 1, "maximum": 100},
        }
    )
    properties: dict[str, Any] = {
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "description": {"type": "string", "maxLength": 300},
        "stage": {"type": "string", "enum": list(stages)},
        "points": {"type": "integer", "minimum": 1, "maximum": 100},
        "levels": {
            "type": "array",
            "minItems": 2,
            "maxItems": 5,
            "items": {"type": "string", "minLength": 1, "maxLength": 160},
        },
        "uses": names,
        "defines": names,
        "counts": {"type": "array", "maxItems": 3, "items": count},
        "comments": {"type": "integer", "minimum": 0, "maximum": 100},
        "documented": {"type": "boolean"},
        "words": {"type": "integer", "minimum": 0, "maximum": 1000},
    }
    criteria = {"type": "array", "minItems": 1, "maxItems": MOST_CRITERIA, "items": _object(properties)}
    return _object({"criteria": criteria})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def rubric_of(text: str, stages: Iterable[str]) -> Rubric:
    """The rubric a model wrote. Raises NoProposal."""
    known = tuple(stages)
    try:
        answer = Answer.model_validate(json.loads(text))
        taken: set[str] = set()
        return Rubric(criteria=tuple(_criterion(one, known, taken) for one in answer.criteria))
    except (ValueError, ValidationError, RecursionError) as error:
        raise NoProposal(ANSWER_NO_RUBRIC) from error


def _criterion(one: Proposed, stages: Sequence[str], taken: set[str]) -> Criterion:
    if one.stage not in stages:
        raise ValueError(f"no stage {one.stage}")
    name = unused(slug(one.title) or "criterion", taken)
    taken.add(name)
    return Criterion(
        id=name,
        title=one.title.strip(),
        description=one.description.strip(),
        stage=one.stage,
        points=one.points,
        levels=tuple(level.strip() or "–" for level in one.levels),
        checks=tuple(_checks(one)),
    )


def _checks(one: Proposed) -> Iterable[Check]:
    uses, defines = _plain(one.uses), _plain(one.defines)
    if uses:
        yield Uses(all_of=uses)
    if defines:
        yield Defines(all_of=defines)
    for count in one.counts:
        for name in _plain((count.name,)):
            yield Count(names=(name,), at_least=count.at_least)
    if one.comments:
        yield Comments(at_least=one.comments)
    if one.documented:
        yield Documented()
    if one.words:
        yield Words(at_least=one.words)


def _plain(names: Sequence[str]) -> tuple[str, ...]:
    """Names as checks want them: models like to write calls."""
    found = (name.strip().strip("`").removesuffix("()")[:NAME] for name in names)
    return tuple(dict.fromkeys(name for name in found if name and " " not in name))
