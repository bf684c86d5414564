"""Imports all of Grader and watches that it does no work: no connection, no thread, no engine, no setting."""

from __future__ import annotations

import importlib
import os
import pkgutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest.mock import patch

PACKAGES = ("app", "bench", "cli", "grader_client", "grading", "workers")
HEAVY = {"mlx", "mlx_lm", "ollama", "transformers"}


def import_all() -> None:
    """Every module of PACKAGES."""
    for package in map(importlib.import_module, PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def work_while_importing() -> str:
    """Import all, and say which work that did first; nothing if none."""
    try:
        with _watched():
            import_all()
    except AssertionError as error:
        return str(error)
    if threading.active_count() > 1:
        return f"threads run: {threading.enumerate()}"
    heavy = HEAVY & set(sys.modules)
    return f"{heavy} came along" if heavy else ""


@contextmanager
def _watched() -> Iterator[None]:
    environ = type(os.environ)
    read = environ.__getitem__

    def looked_up(self: Any, key: Any) -> Any:
        assert not str(key).startswith("GRADER_"), f"{key} was read at import time"
        return read(self, key)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a connection at import time")

    with patch.object(environ, "__getitem__", looked_up), patch.object(socket.socket, "connect", refuse):
        yield
