"""What `make test` seldom or never runs fits the code: mypy reads no tests, and no scripts either.

Names of Grader's modules, classes and instances are there, and functions and tables take what they are given.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest

ROOT = Path(__file__).parents[3]
OURS = ("app", "bench", "cli", "grader_client", "grading", "samples", "tests", "workers")
UNKNOWN = object()
HELPERS = ("show_", "bare_")
"""What names of modules begin with that only the long tests and the pictures stand on."""


def seldom_run() -> dict[str, str]:
    """Tests that have the soak's mark, what they stand on, and scripts: path -> text."""
    tests = {path: path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")}
    scripts = {path: path.read_text("utf-8") for path in (ROOT / "scripts").iterdir() if path.is_file()}
    chosen = {
        path: text for path, text in tests.items() if "mark.soak" in text or path.name.startswith(HELPERS)
    }
    python = {
        path: text for path, text in scripts.items() if path.suffix == ".py" or re.match("#!.*python", text)
    }
    return {path.relative_to(ROOT).as_posix(): text for path, text in {**chosen, **python}.items()}


def misfits(text: str) -> Iterator[str]:
    """What a text takes from our modules that is not there, and calls that would fail at once, by line."""
    nodes = list(ast.walk(ast.parse(text)))
    known: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in OURS:
            for one in node.names:
                found = known[one.asname or one.name] = imported(node.module, one.name)
                if found is UNKNOWN:
                    yield f"{node.lineno}: {node.module}.{one.name}"
    for name in bound(nodes):
        known.pop(name, None)
    instances = instances_of(nodes, known)
    for node in nodes:
        if isinstance(node, ast.Attribute) and lacks(node, known, instances):
            yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and (why := refused(value(node.func, known), node)):
            yield f"{node.lineno}: {ast.unparse(node.func)}: {why}"


def imported(module: str, name: str) -> Any:
    """What `from module import name` gives."""
    try:
        found = getattr(importlib.import_module(module), name, UNKNOWN)
        return importlib.import_module(f"{module}.{name}") if found is UNKNOWN else found
    except ModuleNotFoundError:
        return UNKNOWN


def bound(nodes: list[ast.AST]) -> Iterator[str]:
    """Names that are something else somewhere in the file."""
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def instances_of(nodes: list[ast.AST], known: dict[str, Any]) -> dict[str, type]:
    """Names that stand for instances of one class of ours wherever the file binds them."""
    found: dict[str, list[Any]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id].append(made_by(node.value, known))
        elif isinstance(node, ast.arg) and node.annotation is not None:
            found[node.arg].append(value(node.annotation, known))
    times: dict[str, int] = defaultdict(int)
    for name in bound(nodes):
        times[name] += 1
    return {
        name: classes[0]
        for name, classes in found.items()
        if len(classes) == times[name]
        and all(one is classes[0] for one in classes)
        and isinstance(classes[0], type)
        and classes[0].__module__.partition(".")[0] in OURS
    }


def made_by(node: ast.AST, known: dict[str, Any]) -> Any:
    """The class of what a call gives."""
    called = value(node.func, known) if isinstance(node, ast.Call) else UNKNOWN
    if called is UNKNOWN or isinstance(called, type):
        return called
    try:
        return get_type_hints(called).get("return", UNKNOWN)
    except (NameError, TypeError):  # of names that only type checkers import
        return UNKNOWN


def has(of: type, name: str) -> bool:
    """Whether instances of a class have this attribute."""
    return name in own_names(of) or hasattr(of, name) or hasattr(of, "__getattr__")


@cache
def own_names(of: type) -> frozenset[str]:
    """What its classes annotate, or name of themselves."""
    found: set[str] = set()
    for one in of.__mro__[:-1]:
        found |= {*vars(one).get("__annotations__", {})}
        if one.__module__ != "builtins":
            found |= set(re.findall(r"\bself\.(\w+)", inspect.getsource(one)))
    return frozenset(found)


def value(node: ast.AST, known: dict[str, Any]) -> Any:
    """What a name, or a name of one of our modules or classes, stands for."""
    if isinstance(node, ast.Name):
        return known.get(node.id, UNKNOWN)
    if isinstance(node, ast.Attribute):
        of = value(node.value, known)
        return getattr(of, node.attr, UNKNOWN) if isinstance(of, ModuleType | type) else UNKNOWN
    return UNKNOWN


def lacks(node: ast.Attribute, known: dict[str, Any], instances: dict[str, type]) -> bool:
    """Whether a module, a class or an instance has no such name."""
    of = value(node.value, known)
    if isinstance(of, ModuleType | type):
        return not hasattr(of, node.attr)
    instance = instances.get(node.value.id) if isinstance(node.value, ast.Name) else None
    return instance is not None and not has(instance, node.attr)


def refused(called: Any, call: ast.Call) -> str:
    """Why a function or class would not take these arguments."""
    names = [one.arg for one in call.keywords]
    if called is UNKNOWN or None in names or any(isinstance(one, ast.Starred) for one in call.args):
        return ""
    if hasattr(called, "__mapper__"):
        return ", ".join(name for name in names if name is not None and not hasattr(called, name))
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*call.args, **dict.fromkeys(filter(None, names)))
    except TypeError as error:
        return str(error)
    return ""


def test_what_is_seldom_run_fits_the_code() -> None:
    wrong = {name: found for name, text in seldom_run().items() if (found := list(misfits(text)))}
    assert wrong == {}


@pytest.mark.parametrize(
    "text",
    [
        "from grading.store.trust import parity\nparity.NONE",
        "from grading.store.trust.parity import NONE",
        "from grading.store import tables\ntables.Round.none",
        "from grading.store import tables\ntables.Round(none=1)",
        "from grading.store.trust import parity\nparity.night_of()",
        "from grader_client import Client\nclient = Client('', '')\nclient.status('')",
        "from grader_client import Client\ndef test(client: Client) -> None:\n    client.status('')",
        "def test() -> None:\n    from tests.e2e.courses.show_pages import open_school\n    open_school()",
    ],
)
def test_a_misfit_would_be_found(text: str) -> None:
    assert list(misfits(text))
    assert not list(misfits("from grading.store.trust import parity\nparity.night_of(1)"))
