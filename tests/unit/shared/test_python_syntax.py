"""Python's parser on several threads at once."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from grading.shared import python_syntax

SOURCE = "\n".join(
    f"def f{n}(a, b=[1, (2, {{'x': lambda y: y}})]):\n    return [x for x in a]" for n in range(60)
)


class Slow:
    """Part of a cycle that is collected while trees are made: other threads go on then."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.fixture
def collecting() -> Iterator[None]:
    """Collect garbage all the time, and change threads often."""
    import sys

    before, interval = gc.get_threshold(), sys.getswitchinterval()
    was_on = gc.isenabled()
    gc.enable()
    gc.set_threshold(50, 2, 2)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*before)
    if not was_on:
        gc.disable()


def test_threads_do_not_disturb_each_other(collecting: None) -> None:
    """With `ast.parse` itself, CPython 3.11.7 raises a SystemError among the first 30."""

    def read(_number: int) -> int:
        Slow()
        tree = python_syntax.parse(SOURCE)
        assert isinstance(tree, ast.Module)
        return len(tree.body)

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(read, range(60))) == {60}


def test_escapes_that_are_none_are_no_warnings(recwarn: pytest.WarningsRecorder) -> None:
    assert python_syntax.literal('"C:\\data"') == "C:\\data"
    assert recwarn.list == []
    with pytest.raises(SyntaxError):
        python_syntax.parse("def")
