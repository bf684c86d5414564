"""Says where a rubric that an instructor wrote is wrong: the key, and what is allowed there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from grading.domain.base_value import InvalidValue
from grading.domain.check import Check, CheckBase, check_kinds
from grading.domain.errors import AssignmentError
from grading.domain.messages import Message, define_message, verbatim
from grading.domain.patterns import compiled
from grading.domain.rubric import Adjustment, Criterion, Rubric

_INSIDE: dict[str, type[BaseModel]] = {"criteria": Criterion, "adjustments": Adjustment}


AT_PLACE = define_message("rubric.at_place", "%(place)s: %(problem)s")
UNKNOWN = define_message("rubric.unknown", "is not a known key")
UNKNOWN_KEY = define_message("rubric.unknown_key", "is not a known key; allowed are %(known)s")
ONE_OF = define_message("rubric.one_of", "must be one of %(kinds)s")
MUST_BE = define_message("rubric.must_be", "must be %(expected)s")
ASKS_FOR_NOTHING = define_message("rubric.asks_for_nothing", "checks nothing; set %(keys)s")
MOMENT = define_message(
    "rubric.moment",
    "must be a date and time with its offset from UTC, such as 2026-12-01T23:59:00+01:00",
)
_LIST = define_message("rubric.list", 'must be a list, such as ["first", "second"]')
_TABLE = define_message("rubric.table", "must be a table with named entries")
PLAIN = {
    "missing": define_message("rubric.missing", "is missing"),
    "tuple_type": _LIST,
    "list_type": _LIST,
    "string_type": define_message("rubric.text", 'must be text in quotes, such as "3"'),
    "dict_type": _TABLE,
    "model_type": _TABLE,
    "model_attributes_type": _TABLE,
    "string_pattern_mismatch": define_message(
        "rubric.name",
        "may contain only lowercase letters, digits, '-', '_' and '.', and must start with a letter or digit",
    ),
}
"""Of kinds of pydantic's errors."""


class RubricError(AssignmentError):
    """Something is wrong at a key of a rubric."""

    def __init__(self, place: str, problem: Message) -> None:
        super().__init__(AT_PLACE(place=place, problem=problem) if place else problem)
        self.place, self.problem = place, problem


def explain(error: ValidationError, top: type[BaseModel]) -> AssignmentError:
    """The first mistake as `criteria[2].checks[0].all_of: …`; `top` is what was validated."""
    place, message = mistakes(error, top)[0]
    return RubricError(place, message)


def mistakes(error: ValidationError, top: type[BaseModel]) -> list[tuple[str, Message]]:
    """The key of each mistake, as above, and what is wrong there."""
    return [_mistake(dict(one), top) for one in error.errors(include_url=False)]


def _mistake(first: dict[str, Any], top: type[BaseModel]) -> tuple[str, Message]:
    location = list(first["loc"])
    place, model = _place(location, top)
    kind, context = first["type"], first.get("ctx", {})
    if kind == "extra_forbidden":
        known = ", ".join(sorted(model.model_fields)) if model is not None else ""
        return place, UNKNOWN_KEY(known=known) if known else UNKNOWN()
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return f"{place}.kind", ONE_OF(kinds=", ".join(check_kinds()))
    if kind in PLAIN:
        return place, PLAIN[kind]()
    if kind.startswith(("timezone", "datetime")):
        return place, MOMENT()
    if kind == "literal_error":
        return place, MUST_BE(expected=context["expected"])
    if isinstance(error := context.get("error"), InvalidValue):
        return place, error.coded
    message = str(first["msg"]).removeprefix("Value error, ")
    return place, verbatim(message[:1].lower() + message[1:])


def _place(location: Sequence[int | str], top: type[BaseModel]) -> tuple[str, type[BaseModel] | None]:
    """The key as an instructor wrote it, without the tags of unions, and the class the last key is in."""
    place, kinds = "", check_kinds()
    model: type[BaseModel] | None = top
    owner: type[BaseModel] | None = top
    previous: int | str = ""
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        elif part in kinds and isinstance(previous, int):
            model = kinds[part]
        else:
            place += f".{part}" if place else str(part)
            owner = model
            model = _INSIDE.get(str(part)) or _part(model, str(part)) or model
        previous = part
    return place, owner


def _part(model: type[BaseModel] | None, name: str) -> type[BaseModel] | None:
    """The class of the values in a list, where it is one."""
    if model is None or name not in model.model_fields:
        return None
    inside = get_args(model.model_fields[name].annotation)[:1]
    return next((one for one in inside if isinstance(one, type) and issubclass(one, BaseModel)), None)


def check_rubric(rubric: Rubric) -> None:
    """Raises AssignmentError for checks that ask for nothing and regular expressions that cannot be used."""
    for place, value in _values(rubric):
        if isinstance(value, Criterion | Adjustment):
            _pattern(value.where, f"{place}.where")
            continue
        _pattern(value.where, f"{place}.where")
        _pattern(value.part, f"{place}.part")
        if value.needed_keys and not any(getattr(value, key) for key in value.needed_keys):
            raise RubricError(place, ASKS_FOR_NOTHING(keys=" or ".join(value.needed_keys)))
        for key, problem in value.problems():
            raise RubricError(f"{place}.{key}", problem)
        for key in value.pattern_keys:
            for n, pattern in enumerate(getattr(value, key)):
                _pattern(pattern, f"{place}.{key}[{n}]")


def checks_of(rubric: Rubric) -> Iterator[tuple[str, CheckBase]]:
    """Every check with the key it has in the rubric, also those inside others."""
    return ((place, value) for place, value in _values(rubric) if isinstance(value, CheckBase))


def _values(rubric: Rubric) -> Iterator[tuple[str, Criterion | Adjustment | CheckBase]]:
    for n, criterion in enumerate(rubric.criteria):
        yield f"criteria[{n}]", criterion
        yield from _inside(f"criteria[{n}].checks", criterion.checks)
    for n, adjustment in enumerate(rubric.adjustments):
        yield f"adjustments[{n}]", adjustment
        yield from _inside(f"adjustments[{n}].unless", adjustment.unless)


def _inside(key: str, checks: Sequence[Check]) -> Iterator[tuple[str, CheckBase]]:
    stack: list[tuple[str, CheckBase]] = [(f"{key}[{i}]", check) for i, check in enumerate(checks)]
    while stack:
        place, check = stack.pop(0)
        yield place, check
        stack += [(f"{place}.{key}", one) for key, one in check.inner()]


def _pattern(pattern: str | None, place: str) -> None:
    if pattern is None:
        return
    try:
        compiled(pattern)
    except AssignmentError as error:
        raise RubricError(place, error.coded) from error
