"""A rubric as the fields of a form, found from its classes: a new kind of check has a form by itself.

The form's values are raw: texts, lists of raw parts, and dictionaries of them, as somebody typed them, so
that what cannot be read yet is not lost. Fields are named by paths such as `criteria.0.checks.1.all_of`.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from grading.assignments.editor import text_lists
from grading.assignments.editor.folder import plain
from grading.domain.check import CheckBase, check_kinds
from grading.domain.errors import AssignmentError
from grading.domain.messages import Message, define_message
from grading.domain.rubric import Rubric
from grading.domain.rubric_errors import RubricError, check_rubric, mistakes

Kind = Literal[
    "text",
    "number",
    "whole",
    "yes",
    "choice",
    "lines",
    "numbers",
    "pairs",
    "lists",
    "texts",
    "parts",
    "checks",
]
"""text     words                     lines    texts, one a line
number   with a point or without   numbers  numbers, one a line
whole    without                   pairs    a name and a text a line
yes      ticked or not             lists    a name and several texts a line
choice   one of `choices`          texts    several texts, each in a field of its own
parts    several of a class        checks   several of any kind of check
"""
DEEPEST = 14
"""Parts of a field's name that are looked at."""
NO_STAGE = define_message("rubric.no_stage", "there is no stage “%(stage)s”; there are %(known)s")
MOST = 2_000
"""Parts of one list."""
Raw = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """One field of a class: how it is asked for."""

    name: str
    kind: Kind
    optional: bool = False
    """Left empty it is nothing, which is not the same as an empty text."""
    choices: tuple[str, ...] = ()
    part: type[BaseModel] | None = None
    default: Any = None
    required: bool = False

    @property
    def untouched(self) -> Any:
        """What the form shows of it as long as nobody wrote anything there."""
        return _empty(self) if self.default is None else _shown(self, self.default)


@dataclass(frozen=True)
class Problem:
    """Something that is wrong, at a field of the form; no place: with the whole."""

    place: str
    message: Message


@lru_cache(maxsize=64)
def shapes(model: type[BaseModel]) -> tuple[Shape, ...]:
    """The fields of a class in their order, without the kind; those all checks have come last."""
    model.model_rebuild()  # some name a class that stands below them
    common = CheckBase.model_fields if issubclass(model, CheckBase) else {}
    own = [name for name in model.model_fields if name not in common]
    return tuple(_shape(name, model) for name in [*own, *(name for name in common if name != "kind")])


def _shape(name: str, model: type[BaseModel]) -> Shape:
    info = model.model_fields[name]
    said, optional = _without_nothing(info.annotation)
    default = None if info.is_required() else info.get_default(call_default_factory=True)
    kind, choices, part = _kind(said)
    if kind == "lines" and name == "levels":  # long texts
        kind = "texts"
    return Shape(name, kind, optional, choices, part, default, info.is_required())


def _without_nothing(said: Any) -> tuple[Any, bool]:
    if get_origin(said) in (Union, types.UnionType) and type(None) in get_args(said):
        (inner,) = [one for one in get_args(said) if one is not type(None)]
        return inner, True
    return said, False


def _kind(said: Any) -> tuple[Kind, tuple[str, ...], type[BaseModel] | None]:
    origin, inside = get_origin(said), get_args(said)
    if origin is Literal:
        return "choice", tuple(map(str, inside)), None
    if origin is tuple:
        return _several(inside[0])
    if origin is dict:
        return ("lists" if get_origin(inside[1]) is tuple else "pairs"), (), None
    plain_kinds: dict[Any, Kind] = {bool: "yes", int: "whole", float: "number"}
    return plain_kinds.get(said, "text"), (), None


def _several(inner: Any) -> tuple[Kind, tuple[str, ...], type[BaseModel] | None]:
    if get_origin(inner) is Annotated or get_origin(inner) in (Union, types.UnionType):
        return "checks", (), CheckBase
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return "parts", (), inner
    return ("numbers" if inner in (int, float) else "lines"), (), None


# --- values to the form ---------------------------------------------------------------------------------


def to_raw(value: BaseModel) -> Raw:
    """A value as the form shows it."""
    found: Raw = {shape.name: _shown(shape, getattr(value, shape.name)) for shape in shapes(type(value))}
    return {"kind": value.kind, **found} if isinstance(value, CheckBase) else found


def _shown(shape: Shape, value: Any) -> Any:
    if shape.kind in ("parts", "checks"):
        return [to_raw(one) for one in value]
    if shape.kind == "texts":
        return list(value)
    if shape.kind == "yes":
        return "yes" if value else ""
    if shape.kind in ("lines", "numbers"):
        return text_lists.lines_of(
            [text_lists.number(one) if shape.kind == "numbers" else one for one in value or ()]
        )
    if shape.kind in ("pairs", "lists"):
        return text_lists.pairs_of(value or {}, several=shape.kind == "lists")
    if value is None:
        return ""
    return text_lists.number(value) if shape.kind in ("number", "whole") else str(value)


def blank(model: type[BaseModel]) -> Raw:
    """A new part as the form shows it."""
    found: Raw = {shape.name: shape.untouched for shape in shapes(model)}
    return {"kind": model.model_fields["kind"].default, **found} if issubclass(model, CheckBase) else found


def _empty(shape: Shape) -> Any:
    if shape.kind == "parts" and shape.part is not None:
        return [blank(shape.part)]
    return [] if shape.kind in ("texts", "checks") else ""


# --- the form to values ---------------------------------------------------------------------------------


def of_form(pairs: Iterable[tuple[str, str]]) -> Raw:
    """The raw rubric of a form's fields; fields of other names are passed over."""
    tree: dict[str, Any] = {}
    for name, value in pairs:
        path = name.split(".")
        if len(path) > DEEPEST:
            continue
        here: Any = tree
        for part in path[:-1]:
            here = here.setdefault(part, {})
            if not isinstance(here, dict):
                break
        if isinstance(here, dict) and not isinstance(here.get(path[-1]), dict):
            here[path[-1]] = value.replace("\r\n", "\n")
    return _of_tree(tree, Rubric)


def _of_tree(tree: Any, model: type[BaseModel]) -> Raw:
    tree = tree if isinstance(tree, dict) else {}
    return {shape.name: _part_of(shape, tree.get(shape.name)) for shape in shapes(model)}


def _part_of(shape: Shape, found: Any) -> Any:
    if shape.kind == "texts":
        return [one for one in _listed(found) if isinstance(one, str)]
    if shape.kind == "parts" and shape.part is not None:
        return [_of_tree(one, shape.part) for one in _listed(found)]
    if shape.kind == "checks":
        return [_check_of(one) for one in _listed(found) if isinstance(one, dict)]
    return found if isinstance(found, str) else ""


def _check_of(tree: dict[str, Any]) -> Raw:
    kind = str(tree.get("kind", ""))
    return {"kind": kind, **_of_tree(tree, check_kinds()[kind])} if kind in check_kinds() else {"kind": kind}


def _listed(found: Any) -> list[Any]:
    if not isinstance(found, dict):
        return []
    numbered = [(int(key), one) for key, one in found.items() if re.fullmatch(r"[0-9]{1,5}", key)]
    return [one for _, one in sorted(numbered, key=lambda pair: pair[0])][:MOST]


def read(raw: Raw, stages: Iterable[str]) -> tuple[Rubric | None, tuple[Problem, ...]]:
    """The rubric a form says, or what is wrong with it, field by field."""
    problems: list[Problem] = []
    data = _data(raw, Rubric, "", problems)
    _name(data)
    if problems:
        return None, tuple(problems)
    return validated(data, stages)


def validated(data: Any, stages: Iterable[str]) -> tuple[Rubric | None, tuple[Problem, ...]]:
    """The rubric that JSON says, or all that is wrong with it."""
    try:
        rubric = Rubric.model_validate(data)
        check_rubric(rubric)
    except ValidationError as error:
        return None, tuple(Problem(field_name(place), text) for place, text in mistakes(error, Rubric))
    except AssignmentError as error:
        return None, (problem_of(error),)
    known = tuple(stages)
    unknown = [
        Problem(f"criteria.{n}.stage", NO_STAGE(stage=one.stage, known=known))
        for n, one in enumerate(rubric.criteria)
        if one.stage not in known
    ]
    return (None, tuple(unknown)) if unknown else (rubric, ())


def problem_of(error: AssignmentError) -> Problem:
    """A mistake the reader of folders found, at its field where it names one."""
    if isinstance(error, RubricError):
        return Problem(field_name(error.place), error.problem)
    return Problem("", error.coded)


def field_name(place: str) -> str:
    """`criteria[2].checks[0].all_of` as the form calls it."""
    return re.sub(r"\[(\d+)\]", r".\1", place)


def _data(raw: Raw, model: type[BaseModel], place: str, problems: list[Problem]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if issubclass(model, CheckBase):
        found["kind"] = raw.get("kind", "")
    for shape in shapes(model):
        name = f"{place}.{shape.name}" if place else shape.name
        try:
            value = _meant(shape, raw.get(shape.name), name, problems)
        except text_lists.NotReadable as error:
            problems.append(Problem(name, error.coded))
            continue
        if value is not None or not (shape.optional or shape.required):
            found[shape.name] = value
    return {key: value for key, value in found.items() if value is not None}


def _meant(shape: Shape, raw: Any, name: str, problems: list[Problem]) -> Any:
    """What was typed, as JSON; nothing: as if it had not been asked."""
    if shape.kind == "checks":
        return [_check_data(one, f"{name}.{n}", problems) for n, one in enumerate(raw or ())]
    if shape.kind == "parts" and shape.part is not None:
        return [_data(one, shape.part, f"{name}.{n}", problems) for n, one in enumerate(raw or ())]
    if shape.kind == "texts":
        return [one for one in raw or () if one.strip()]
    text = raw or ""
    if shape.kind == "yes":
        return bool(text)
    if shape.kind in ("lines", "numbers"):
        said = text_lists.lines(text)
        return [text_lists.read_number(one) for one in said] if shape.kind == "numbers" else said
    if shape.kind in ("pairs", "lists"):
        return text_lists.pairs(text, several=shape.kind == "lists")
    if shape.kind in ("number", "whole"):
        return text_lists.read_number(text, whole=shape.kind == "whole") if text.strip() else None
    if not text and (shape.optional or shape.kind == "choice"):
        return None
    return text


def _check_data(raw: Raw, name: str, problems: list[Problem]) -> dict[str, Any]:
    kind = str(raw.get("kind", ""))
    return _data(raw, check_kinds()[kind], name, problems) if kind in check_kinds() else {"kind": kind}


def _name(data: dict[str, Any]) -> None:
    """Criteria and adjustments without an id get one from their title; ids stay when titles change.

    An adjustment may name its criteria by their titles, too, which is all that the form shows of new ones.
    """
    for key, otherwise in (("criteria", "criterion"), ("adjustments", "deduction")):
        taken = {one.get("id") for one in data.get(key, ())}
        for one in data.get(key, ()):
            if not one.get("id"):
                one["id"] = text_lists.unused(text_lists.slug(str(one.get("title", ""))) or otherwise, taken)
                taken.add(one["id"])
    ids = {one["id"] for one in data.get("criteria", ())}
    titled = {str(one.get("title", "")): one["id"] for one in reversed(data.get("criteria", ()))}
    for one in data.get("adjustments", ()):
        named = one.get("criteria", ())
        one["criteria"] = [name if name in ids else titled.get(name, name) for name in named]


def as_json(rubric: Rubric) -> dict[str, Any]:
    """The rubric without its defaults, as the text mode and exported folders have it."""
    return {**plain(rubric)}
