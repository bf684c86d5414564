"""Reads a JSON object key by key, so that the values that nobody read can be named.

A rubric of another autograder has keys that are not known here. Each of them is named to the instructor, so
every value of the file is either asked for by `grading.assignments.legacy_import.source` or left in
`Keys.left`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from grading.domain.errors import AssignmentError
from grading.domain.messages import define_message

NO_RUBRIC_ELEMENTS = define_message(
    "legacy_rubric.no_rubric_elements", "the rubric must be a JSON object with rubric_elements"
)
NOT_AN_OBJECT_OF_ENTRIES = define_message(
    "legacy_rubric.not_an_object_of_entries", "must be an object with named entries"
)
NOT_A_LIST_OF_TEXTS = define_message("legacy_rubric.not_a_list_of_texts", "must be a list of strings")
NOT_A_TEXT = define_message("legacy_rubric.not_a_text", "must be a string")
NOT_A_NUMBER_FROM_0 = define_message("legacy_rubric.not_a_number_from_0", "must be a number of at least 0")
RUBRIC_NOT_JSON = define_message("legacy_rubric.rubric_not_json", "the rubric is not valid JSON: %(why)s")
NOT_AN_OBJECT = define_message("legacy_rubric.not_an_object", "must be an object")

MAX_NUMBER = 1e6
PROSE = frozenset(
    "common_issues common_issues_and_solutions common_mistakes grading_guidelines grading_instructions"
    " ai_grading_instructions assignment_prompt_additions critical_concepts output_validation example_scores"
    " key_learning_objectives learning_objectives_mapping submission_requirements grading_strategy"
    " grade_scale data_structure assignment_info".split()
)
"""Tables that speak to whoever grades, or to students; nothing in them can be checked."""
_INDEX = re.compile(r"\[\d+\]")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Keys:
    """An object of the file. `path` says where it stands, such as `rubric_elements.cleaning`."""

    def __init__(self, value: Mapping[str, Any], path: str = "", left: dict[str, str] | None = None) -> None:
        self.path = path
        self._value = value
        self._left = dict(_leaves(value, path)) if left is None else left

    @property
    def left(self) -> dict[str, str]:
        """Path and text of each value of the whole file that nobody asked for yet."""
        return dict(self._left)

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def at(self, key: str) -> str:
        """The path of a key of this object."""
        return f"{self.path}.{key}" if self.path else key

    def table(self, key: str) -> Keys:
        """The object below a key; an empty one when the key is missing."""
        value = self._value.get(key, {})
        if not isinstance(value, Mapping):
            raise AssignmentError(NOT_AN_OBJECT_OF_ENTRIES, at=self.at(key))
        return Keys(value, self.at(key), self._left)

    def is_table(self, key: str) -> bool:
        """Whether an object stands below the key."""
        return isinstance(self._value.get(key), Mapping)

    def tables(self) -> Iterator[tuple[str, Keys]]:
        """Every entry, each of which must be an object."""
        for key, value in self._value.items():
            if not isinstance(value, Mapping):
                raise AssignmentError(NOT_AN_OBJECT, at=self.at(key))
            yield key, Keys(value, self.at(key), self._left)

    def entries(self) -> Iterator[str]:
        """The names of all entries."""
        yield from self._value

    def texts(self, key: str) -> tuple[str, ...]:
        """The list of texts below a key; empty when it is missing."""
        value = self._taken(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise AssignmentError(NOT_A_LIST_OF_TEXTS, at=self.at(key))
        return tuple(one for one in value if one.strip())

    def text(self, key: str) -> str:
        """One text; numbers and yes or no as text, a list as lines."""
        value = self._taken(key, "")
        if isinstance(value, Mapping):
            raise AssignmentError(NOT_A_TEXT, at=self.at(key))
        return "\n".join(str(one) for one in value) if isinstance(value, list) else str(value)

    def flag(self, key: str) -> bool | None:
        """Yes or no; nothing when the key is missing or says something else."""
        value = self._taken(key, None)
        return value if isinstance(value, bool) else None

    def number(self, key: str) -> float | None:
        """A number from 0 on; nothing when the key is missing."""
        value = self._taken(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_NUMBER:
            raise AssignmentError(NOT_A_NUMBER_FROM_0, at=self.at(key))
        return float(value)

    def named_texts(self) -> dict[str, str]:
        """Every entry that is a text, by name; other entries stay unasked."""
        return {key: self.text(key) for key, value in self._value.items() if isinstance(value, str)}

    def _taken(self, key: str, otherwise: Any) -> Any:
        if key not in self._value:
            return otherwise
        for path, _ in _leaves(self._value[key], self.at(key)):
            self._left.pop(path, None)
        return self._value[key]


def parse_json(source: bytes | str) -> Mapping[str, Any]:
    """The object in a JSON text; raises AssignmentError."""
    try:
        data = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise AssignmentError(RUBRIC_NOT_JSON(why=error)) from error
    if not isinstance(data, dict):
        raise AssignmentError(NO_RUBRIC_ELEMENTS)
    return data


def percent(text: str) -> float | None:
    """The first percentage in a text as a share, such as 0.2 for `20% deduction`; nothing without one."""
    hit = re.search(r"(\d{1,3}(?:\.\d+)?)\s*%", text)
    return min(1.0, float(hit.group(1)) / 100) if hit else None


def first_number(text: str) -> float | None:
    """The first number in a text, such as 5 for `up to 5 bonus points`."""
    hit = _NUMBER.search(text)
    return float(hit.group()) if hit else None


def untaken(left: Mapping[str, str]) -> list[str]:
    """A sentence for each table that values were left in, with the names of all of them."""
    groups: dict[str, dict[str, None]] = {}
    for path in left:
        table, _, rest = _INDEX.sub("", path).partition(".")
        if rest and table not in PROSE:  # where there are keys with a meaning, name the table around this one
            inner, _, last = f"{table}.{rest}".rpartition(".")
            table, rest = inner, last
        groups.setdefault(table, {})[rest] = None
    return [_sentence(table, list(names)) for table, names in groups.items()]


def _sentence(table: str, names: list[str]) -> str:
    named = ", ".join(name for name in names if name)
    what = f"{table} ({named})" if named else table
    if table in PROSE:
        return (
            f"Not taken: {what}. It speaks to whoever grades: write what the model should know into "
            "instructions/analysis.md or feedback.md, and what students should know into the task."
        )
    return (
        f"Not taken: {what}. Nothing here has this meaning: add a check or an adjustment if it should count."
    )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Path and text of each value that is no object and no list; of empty ones too."""
    stack = [(path, value)]
    while stack:
        at, here = stack.pop()
        if isinstance(here, Mapping) and here:
            stack += [(f"{at}.{key}" if at else str(key), one) for key, one in reversed(list(here.items()))]
        elif isinstance(here, list) and here:
            stack += [(f"{at}[{number}]", one) for number, one in reversed(list(enumerate(here)))]
        else:
            yield at, str(here)
