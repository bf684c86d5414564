"""`grader` commands that run in the process of the tests."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Protocol

import pytest

from cli.main import main


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    status: int
    out: str
    error: str


class Grader(Protocol):
    """Runs a command in this process."""

    def __call__(self, *arguments: str) -> Said: ...


def in_process(monkeypatch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> Grader:
    """Runs commands, and reads what they said from what pytest captured."""

    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["grader", *arguments])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        said = captured.readouterr()
        return Said(status, said.out, said.err)

    return run
