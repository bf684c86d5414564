"""Runs `grader` with its intervals divided: `python -m bench.cluster.compressed FACTOR ARGUMENTS…`.

Modules are changed as they are imported, before anything can read a constant: what imports it, a default
argument and what is computed from it see the shorter one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from bench.cluster.speed import SCALED, edits

MOST = 20.0
"""The largest factor: beyond it, what computers really take is no small part of what is measured."""
_HOOK = "_shorter"


def shorter(value: Any, factor: float) -> Any:
    """A duration, or all durations of a tuple or mapping, divided by the factor."""
    if isinstance(value, Mapping):
        return {key: shorter(one, factor) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(shorter(one, factor) for one in value)
    return value / factor


class _Loader(SourceFileLoader):
    """Loads a module with some of its constants divided."""

    def __init__(self, name: str, path: str, factor: float) -> None:
        super().__init__(name, path)
        self._factor = factor

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code; `_shorter` is there for it."""
        setattr(module, _HOOK, lambda value: shorter(value, self._factor))
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew each time, and never kept."""
        source = self.get_data(self.path).decode("utf-8")
        for old, new in edits(self._factor).get(fullname, ()):
            if old not in source:
                raise LookupError(f"{fullname} has no longer {old!r}, which compressed time changes")
            source = source.replace(old, new)
        tree = _Divide(SCALED.get(fullname, ())).visit(ast.parse(source, self.path))
        code: CodeType = compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)
        return code


class _Divide(ast.NodeTransformer):
    """`NAME = value` of the module becomes `NAME = _shorter(value)`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = set(names)

    def visit_Module(self, node: ast.Module) -> ast.Module:
        for line in node.body:
            if isinstance(line, ast.Assign | ast.AnnAssign) and line.value and self._ours(line):
                line.value = ast.Call(ast.Name(_HOOK, ast.Load()), [line.value], [])
        if self._names:
            raise LookupError(f"there is no constant {', '.join(sorted(self._names))}")
        return node

    def _ours(self, line: ast.Assign | ast.AnnAssign) -> bool:
        targets = line.targets if isinstance(line, ast.Assign) else [line.target]
        found = {target.id for target in targets if isinstance(target, ast.Name)} & self._names
        self._names -= found
        return bool(found)


class _Finder(MetaPathFinder):
    """Finds the modules of the table."""

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec with a loader that divides; nothing for other modules."""
        if fullname not in SCALED and fullname not in edits(self._factor):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(fullname, spec.origin, self._factor)
        return spec


def install(factor: float) -> None:
    """Divide from now on, in this process. Raises ValueError if a module of the table was imported before."""
    if not 1 <= factor <= MOST:
        raise ValueError(f"the factor must be between 1 and {MOST:g}")
    if before := sorted({*SCALED, *edits(factor)} & set(sys.modules)):
        raise ValueError(f"imported before its constants could be divided: {before[0]}")
    sys.meta_path.insert(0, _Finder(factor))
    from kombu.transport.redis import Transport

    # how long a worker reads the queues that it chose last
    Transport.brpop_timeout = 1 / factor  # type: ignore[assignment]


def main() -> None:
    """Run `grader` so."""
    factor, *arguments = sys.argv[1:]
    install(float(factor))
    sys.argv = ["grader", *arguments]
    from cli.main import main as grader

    grader()


if __name__ == "__main__":
    main()
