"""Progress of commands: on standard error, and only on a terminal."""

from __future__ import annotations

import pytest

from cli.output import counted, progress_bar


def shown(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    with progress_bar("Starting") as report:
        report(1, 4, "Grading one.py")
        report(4, 4, "Grading four.py")
    said = capsys.readouterr()
    return said.out, said.err


def test_logs_and_pipes_get_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys) == ("", "")


def test_a_terminal_gets_one_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    out, err = shown(capsys)
    assert out == ""
    assert "Grading four.py" in err
    assert "100%" in err


def test_a_noun_is_plural_beside_other_numbers_than_one() -> None:
    assert [counted(number, "run") for number in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
