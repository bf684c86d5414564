"""Python's own parser for students' code: one thread at a time, and without warnings about it.

Before Python 3.11.8 and 3.12.2 two threads that make syntax trees at the same time may get a SystemError
(CPython's issue 106905), and filters of warnings belong to the whole process.
"""

from __future__ import annotations

import ast
import threading
import warnings
from typing import Any, Literal

_LOCK = threading.Lock()


def parse(source: str, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """The syntax tree. Raises SyntaxError, ValueError, RecursionError, MemoryError."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, mode=mode)


def literal(text: str) -> Any:
    """The value of a literal. Raises SyntaxError, ValueError, RecursionError, MemoryError."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.literal_eval(text)
