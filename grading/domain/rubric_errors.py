"""Says where a rubric that an instructor wrote is wrong: the key, and what is allowed there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from grading.domain.errors import AssignmentError
from grading.domain.patterns import compiled
from grading.domain.rubric import Adjustment, Check, CheckBase, Count, Criterion, Rubric, Rung

KINDS: dict[str, type[CheckBase]] = {m.model_fields["kind"].default: m for m in get_args(get_args(Check)[0])}
"""The check classes by kind."""
_INSIDE: dict[str, type[BaseModel]] = {"criteria": Criterion, "adjustments": Adjustment, "rungs": Rung}
_PATTERNS = {
    "code_matches": ("all_of", "any_of", "none_of"),
    "output_matches": ("all_of", "any_of"),
    "no_todo": ("extra",),
}
_NEEDS = {
    "uses": ("all_of", "any_of"),
    "defines": ("all_of", "any_of"),
    "avoids": ("names",),
    "count": ("names", "of"),
    **_PATTERNS,
}


def explain(error: ValidationError, top: type[BaseModel]) -> AssignmentError:
    """The first mistake as `criteria[2].checks[0].all_of: …`; `top` is what was validated."""
    place, message = mistakes(error, top)[0]
    return AssignmentError(f"{place}: {message}" if place else message)


def mistakes(error: ValidationError, top: type[BaseModel]) -> list[tuple[str, str]]:
    """The key of each mistake, as above, and what is wrong there."""
    return [_mistake(dict(one), top) for one in error.errors(include_url=False)]


def _mistake(first: dict[str, Any], top: type[BaseModel]) -> tuple[str, str]:
    location = list(first["loc"])
    place, model = _place(location, top)
    kind, message = first["type"], str(first["msg"])
    if kind == "extra_forbidden":
        known = ", ".join(sorted(model.model_fields)) if model is not None else ""
        message = "is not a known key" + (f"; allowed are {known}" if known else "")
    elif kind == "missing":
        message = "is missing"
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        place += ".kind"
        message = f"must be one of {', '.join(KINDS)}"
    elif kind in ("tuple_type", "list_type"):
        message = 'must be a list, such as ["first", "second"]'
    elif kind == "string_type":
        message = 'must be text in quotes, such as "3"'
    elif kind in ("dict_type", "model_type", "model_attributes_type"):
        message = "must be a table with named entries"
    elif kind.startswith(("timezone", "datetime")):
        message = "must be a date and time with its offset from UTC, such as 2026-12-01T23:59:00+01:00"
    elif kind == "literal_error":
        message = f"must be {first['ctx']['expected']}"
    elif kind == "string_pattern_mismatch":
        message = "may hold only small letters, digits, '-', '_' and '.', and starts with a letter or digit"
    else:
        message = message.removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
    return place, message


def _place(location: Sequence[int | str], top: type[BaseModel]) -> tuple[str, type[BaseModel] | None]:
    """The key as an instructor wrote it, without the tags of unions, and the class the last key is in."""
    place = ""
    model: type[BaseModel] | None = top
    owner: type[BaseModel] | None = top
    previous: int | str = ""
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        elif part in KINDS and isinstance(previous, int):
            model = KINDS[part]
        else:
            place += f".{part}" if place else str(part)
            owner = model
            model = _INSIDE.get(str(part), model)
        previous = part
    return place, owner


def check_rubric(rubric: Rubric) -> None:
    """Raises AssignmentError for checks that ask for nothing and regular expressions that cannot be used."""
    for place, value in _values(rubric):
        if isinstance(value, Criterion | Adjustment):
            _pattern(value.where, f"{place}.where")
            continue
        _pattern(value.where, f"{place}.where")
        _pattern(value.part, f"{place}.part")
        kind = str(getattr(value, "kind", ""))
        needed = _NEEDS.get(kind, ())
        if needed and kind != "no_todo" and not any(getattr(value, key) for key in needed):
            raise AssignmentError(f"{place}: asks for nothing; give {' or '.join(needed)}")
        for key, problem in _of_count(value) if isinstance(value, Count) else ():
            raise AssignmentError(f"{place}.{key}: {problem}")
        for key in _PATTERNS.get(kind, ()):
            for n, pattern in enumerate(getattr(value, key)):
                _pattern(pattern, f"{place}.{key}[{n}]")


def _of_count(check: Count) -> Iterator[tuple[str, str]]:
    """Keys with which a count cannot be met or missed, and why."""
    least, most = check.at_least, check.at_most
    if check.names and check.of is not None:
        yield "of", "cannot be given together with names"
    if check.base is not None and check.of != "subclasses":
        yield "base", "can only be given where subclasses are counted"
    if least is None and most is None:
        yield "at_least", "is missing; give it, at_most or both"
    if least is not None and most is not None and most < least:
        yield "at_most", "is less than at_least"


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
    stack: list[tuple[str, Any]] = [(f"{key}[{i}]", check) for i, check in enumerate(checks)]
    while stack:
        place, check = stack.pop(0)
        yield place, check
        stack += [(f"{place}.checks[{i}]", c) for i, c in enumerate(getattr(check, "checks", ()))]
        for i, rung in enumerate(getattr(check, "rungs", ())):
            stack += [(f"{place}.rungs[{i}].when[{j}]", c) for j, c in enumerate(rung.when)]


def _pattern(pattern: str | None, place: str) -> None:
    if pattern is None:
        return
    try:
        compiled(pattern)
    except AssignmentError as error:
        raise AssignmentError(f"{place}: {error}") from error
