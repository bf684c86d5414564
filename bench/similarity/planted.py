"""Copies of programs in Python as somebody makes them who hides it: other names, order, comments, layout."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable, Sequence

_NAMES = (
    "answer amount value entry record bucket target result_list temp current holder piece marker first_one"
    " the_sum index_now storage collected output_value helper_var data_in element running"
).split()
_REMARKS = ("# compute it", "# next step", "# as the task says", "# TODO check", "# works")


def copied(source: str, chance: random.Random, kept: Iterable[str] = ()) -> str:
    """A copy of a program with other names but for those in `kept`, other order, comments and layout."""
    tree = ast.parse(source)
    names = _own_names(tree) - set(kept)
    fresh = [f"{name}{number or ''}" for number in range(20) for name in _NAMES]
    chance.shuffle(fresh)
    tree = _Renamed(dict(zip(sorted(names), fresh, strict=False))).visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef):
            node.body = _without_docstring(node.body)
            node.body = _reordered(node.body, chance)
    return _with_remarks(ast.unparse(ast.fix_missing_locations(tree)), chance)


def _own_names(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self._names.get(node.arg, node.arg)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.arg = self._names.get(node.arg, node.arg) if node.arg else None
        return self.generic_visit(node)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    kept = [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    return kept or [ast.Pass()]


def _reordered(body: list[ast.stmt], chance: random.Random) -> list[ast.stmt]:
    """Functions in any order, and neighbours that do not need each other the other way round."""
    functions = [one for one in body if isinstance(one, ast.FunctionDef)]
    chance.shuffle(functions)
    order = iter(functions)
    made = [next(order) if isinstance(one, ast.FunctionDef) else one for one in body]
    for at in range(len(made) - 1):
        if _independent(made[at], made[at + 1]) and chance.random() < 0.5:
            made[at], made[at + 1] = made[at + 1], made[at]
    return made


def _independent(one: ast.stmt, other: ast.stmt) -> bool:
    if not (isinstance(one, ast.Assign) and isinstance(other, ast.Assign)):
        return False
    names = [{node.id for node in ast.walk(each) if isinstance(node, ast.Name)} for each in (one, other)]
    calls = any(isinstance(node, ast.Call) for each in (one, other) for node in ast.walk(each))
    return not calls and not names[0] & names[1]


def _with_remarks(source: str, chance: random.Random) -> str:
    lines: list[str] = []
    for line in source.split("\n"):
        if chance.random() < 0.3:
            lines.append(line[: len(line) - len(line.lstrip())] + chance.choice(_REMARKS))
        lines.append(line + "  " * chance.randrange(2))
        lines += [""] * (chance.random() < 0.2)
    return "\n".join(lines)


def parsable(sources: Sequence[str]) -> list[str]:
    """Those that are programs."""
    found = []
    for source in sources:
        try:
            ast.parse(source)
        except SyntaxError:
            continue
        found.append(source)
    return found
