"""Ready-made answers, found by the names that an answer has: fields of our schema, criteria of the rubric."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from pydantic import BaseModel

from grading.checks.manipulation.about_grading import says_a_result
from grading.domain.jobs import Judgement
from grading.domain.messages import MessageType, define_message
from grading.domain.rubric import MAX_LEVEL, Rubric
from grading.domain.stages import STAGES

FIELDS = define_message("manipulation.fields", "text with the fields of a model's answer")
LEVELS = define_message("manipulation.levels", "text that gives levels to criteria of the rubric")
FEWEST = 3
"""Different names that must stand near each other; all criteria, where a rubric has fewer."""
NEAR = 400
"""Characters between the first and the last of them."""
MOST = 2_000
"""Names that are looked at in one text."""
GRADES = "level"
"""A field without which an answer gives no grade."""
_FIELD = re.compile(r"(?:^[ \t]{0,20}(?:- )?|\\?[\"'“])(\w{2,20})(?:\\?[\"'”]\s?)?:", re.MULTILINE)
_QUOTE = r"(?:\\?[\"'“”])?"
_VALUE = (
    rf"{_QUOTE}\s{{0,3}}(?:[:=|]|->)\s{{0,3}}(?:\{{|list\()?\s{{0,3}}(?:{_QUOTE}level{_QUOTE}\s?[:=]\s?)?{_QUOTE}"
    r"(\d\b(?!\.[1-9])|[^\W\d_]{2,20})"
)
_Names = Sequence[tuple[int, str]]


def answer_shapes(text: str, rubric: Rubric | None) -> Iterator[tuple[int, MessageType, str]]:
    """Index of the line (from 0), sentence and words of a ready-made answer."""
    fields = [
        (hit.start(1), hit.group(1)) for _, hit in zip(range(MOST), _FIELD.finditer(text), strict=False)
    ]
    for message, named in (
        (FIELDS, _near([one for one in fields if one[1] in _answer_fields()], FEWEST, GRADES)),
        (LEVELS, _near(_given_levels(text, rubric), min(FEWEST, _criteria(rubric)), "")),
    ):
        if named is not None:
            yield text.count("\n", 0, named), message, text[named : named + NEAR]


def _criteria(rubric: Rubric | None) -> int:
    return max(2, len(rubric.criteria)) if rubric is not None else FEWEST


def _near(names: _Names, fewest: int, always: str) -> int | None:
    """Where enough different names begin to stand near each other."""
    first = 0
    for number, (at, _) in enumerate(names):
        while at - names[first][0] > NEAR:
            first += 1
        together = {name for _, name in names[first : number + 1]}
        if len(together) >= fewest and (not always or always in together):
            return names[first][0]
    return None


def _given_levels(text: str, rubric: Rubric | None) -> _Names:
    """Criteria that are given a level, or a word for how they turned out."""
    if rubric is None:
        return ()
    names = {name.casefold() for one in rubric.criteria for name in (one.id, one.title)}
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    hits = re.finditer(rf"(?<![\w-])({either}){_VALUE}", text, re.IGNORECASE)
    return [
        (hit.start(), name)
        for _, hit in zip(range(MOST), hits, strict=False)
        if (name := hit.group(1).casefold()) in names and _is_result(hit.group(2))
    ]


def _is_result(value: str) -> bool:
    # who makes up a level need not know how many the criterion has
    return int(value) <= MAX_LEVEL if value.isdigit() else says_a_result(value)


@cache
def _answer_fields() -> frozenset[str]:
    """Names of fields of all that stages answer."""
    found: set[str] = set()
    models: list[type[BaseModel]] = [Judgement, *(row.output for row in STAGES.values())]
    for model in models:
        found |= _fields_of(model)
    return frozenset(found)


def _fields_of(model: type[BaseModel]) -> set[str]:
    found = set(model.model_fields)
    for field in model.model_fields.values():
        for part in getattr(field.annotation, "__args__", ()):
            if isinstance(part, type) and issubclass(part, BaseModel):
                found |= _fields_of(part)
    return found
