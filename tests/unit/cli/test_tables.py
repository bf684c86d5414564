"""Tables of commands say everything, in a narrow terminal and in none."""

from __future__ import annotations

import pytest
from rich.table import Table

from cli.tables import show, table

MACHINE = "mac-studio-of-the-second-lab-1"
REMEDY = "open the way to it, then run `grader deploy lab-1 --environment /srv/grader/.venv` [again]"


def _table() -> Table:
    rows = table("machine", "runs/h", "remedy", "flags", fold=("remedy",))
    rows.add_row(MACHINE, "1,204", REMEDY, "a-very-long-flag-without-any-blank-in-it" * 2)
    return rows


def test_without_a_terminal_each_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(_table())
    assert REMEDY in capsys.readouterr().out


def test_a_narrow_terminal_gets_every_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    show(_table())
    said = capsys.readouterr().out
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= 80
    for word in REMEDY.split():
        assert word in said
    assert said.count("flag") >= 2
    assert MACHINE in said
