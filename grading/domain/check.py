"""What every check of a rubric has, and the table of their kinds.

A check is deterministic and earns a share between 0 and 1; a criterion's evidence is the weighted mean of
its checks. Names in checks may be any of the rubric's `equivalents`. A kind is a class in a module of
`grading/checks/kinds/`, with its fields, its evaluation and its messages; nothing else names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Union

from pydantic import Field, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from grading.domain.base_value import Value
from grading.domain.messages import Message

KINDS = "grading.checks.kinds"
"""The package whose modules hold the kinds. They are imported when a rubric is first read."""


def _default(value: object) -> bool:
    """Left out of JSON: rubrics stored before the key was there stay as they are."""
    return not value


class CheckBase(Value):
    """What every check has.

    `where` limits a check to cells whose place (headings, first comment lines, also those of the matching
    starter cell) matches this regular expression, ignoring case; without it the whole submission counts.
    `part` limits it to one question of several in such a cell: from the comment line that matches to the
    next one of the same shape. `files` limits it to paths matching a glob.
    """

    id: str = ""
    label: str = ""
    where: str | None = None
    files: str | None = None
    weight: float = Field(default=1.0, gt=0)
    cap: float = Field(default=1.0, ge=0, le=1)
    """The most this check earns."""
    part: str | None = Field(default=None, exclude_if=_default)
    own_lines: int = Field(default=0, ge=0, le=10_000, exclude_if=_default)
    """With fewer lines of the student's own code in its place it earns nothing."""
    given: bool = Field(default=False, exclude_if=_default)
    """Lines of the starter count as well, where their cell was run."""
    kind: str
    """The name of the class; each kind sets it."""

    needed_keys: ClassVar[tuple[str, ...]] = ()
    """Fields of which one at least must be given."""
    pattern_keys: ClassVar[tuple[str, ...]] = ()
    """Fields with regular expressions."""

    def inner(self) -> Iterable[tuple[str, CheckBase]]:
        """The checks inside this one, each with its key, such as `rungs[0].when[1]`."""
        return ()

    def problems(self) -> Iterable[tuple[str, Message]]:
        """Keys with which the check cannot be met or missed, each with the reason."""
        return ()


class _AnyKind:
    """Validates a check by the class of its kind, as a union of all classes would."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_of_its_kind)


Check = Annotated[CheckBase, _AnyKind()]
"""A check of any kind, as a field of a rubric."""


@lru_cache(maxsize=1)
def check_kinds() -> Mapping[str, type[CheckBase]]:
    """The classes of all kinds by the name of the kind."""
    package = import_module(KINDS)
    modules = [import_module(f"{KINDS}.{found.name}") for found in iter_modules(package.__path__)]
    classes = (one for module in modules for one in vars(module).values() if _is_kind(one, module.__name__))
    return MappingProxyType({one.model_fields["kind"].default: one for one in classes})


def _is_kind(found: Any, module: str) -> bool:
    if not (isinstance(found, type) and issubclass(found, CheckBase) and found.__module__ == module):
        return False
    return not found.model_fields["kind"].is_required()


def _of_its_kind(value: Any) -> CheckBase:
    """Raises ValidationError."""
    return _union(tuple(check_kinds().values())).validate_python(value)


@lru_cache(maxsize=1)
def _union(classes: tuple[type[CheckBase], ...]) -> TypeAdapter[CheckBase]:
    union: Any = Union[classes]  # noqa: UP007 - the classes are not known before
    return TypeAdapter(Annotated[union, Field(discriminator="kind")])


def all_checks(checks: Iterable[CheckBase]) -> Iterator[CheckBase]:
    """These checks and those inside them, each before what is inside it."""
    stack = list(reversed(list(checks)))
    while stack:
        check = stack.pop()
        yield check
        stack += reversed([one for _, one in check.inner()])
