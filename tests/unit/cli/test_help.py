"""`grader --help` and completion: grouped, in full, within 80 columns, and quick."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from cli.lazy_group import LazyGroup, summary
from cli.main import COMPLETION, grader, main, sections
from cli.settings import Settings
from grading.domain.errors import ConfigError

CONFIG = """
[[machines]]
name = "dgx-spark-1"
stages = { analysis = { engine = "rules", model = "m" }, feedback = { engine = "rules", model = "m" } }
[[machines]]
name = "mac-studio-1"
stages = { analysis = { engine = "rules", model = "m" } }
"""
SENTENCE = re.compile(r"[A-Z]\w*\b(.*[^.])?\.")


def contexts(context: click.Context) -> Iterator[click.Context]:
    """The context of the command and of all below it."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            below = context.command.get_command(context, name)
            assert below is not None
            yield from contexts(click.Context(below, info_name=name, parent=context, terminal_width=80))


def tree() -> list[click.Context]:
    return [*contexts(click.Context(grader, info_name="grader", terminal_width=80))]


def test_every_help_is_complete_and_fits_80_columns() -> None:
    for context in tree():
        text = context.get_help()
        assert max(map(len, text.splitlines())) <= 80, context.command_path
        described = text.partition("\n\n")[2]
        assert not re.search(r"\w\.\.\.$", described, re.MULTILINE), context.command_path


def test_every_command_has_one_sentence_of_one_line() -> None:
    for context in tree()[1:]:
        first, *rest = (context.command.help or "").splitlines()
        assert SENTENCE.fullmatch(first), context.command_path
        assert rest[:1] in ([], [""]), context.command_path


def test_every_option_has_a_sentence() -> None:
    for context in tree():
        for option in (p for p in context.command.params if isinstance(p, click.Option)):
            said = re.sub(r"  \[default: .*\]$", "", option.help or "")
            assert SENTENCE.fullmatch(said), f"{context.command_path} {option.opts[-1]}"


def test_commands_are_listed_in_sections_as_their_modules_say() -> None:
    said = CliRunner().invoke(grader, ["--help"]).output
    for title, places in sections().items():
        listed = said.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines()
        assert [line.split(maxsplit=1) for line in listed] == [[n, summary(p)] for n, p in places.items()]


def test_help_imports_no_command() -> None:
    program = "import sys; from cli.main import grader; grader(['--help'], standalone_mode=False)"
    program += "; print([m for m in sys.modules if m.startswith('cli.commands.')], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_the_version_is_that_of_the_package() -> None:
    assert re.fullmatch(r"grader, version \d+\.\d+\.\d+\n", CliRunner().invoke(grader, ["--version"]).output)


@pytest.mark.parametrize(
    ("words", "like"),
    [(["dran"], "drain"), (["bench", "overhed"], "overhead"), (["db", "upgrad"], "upgrade"),
     (["submit", "--assigment"], "--assignment")],
)  # fmt: skip
def test_a_mistyped_name_is_answered_with_the_one_like_it(words: list[str], like: str) -> None:
    said = CliRunner().invoke(grader, words, prog_name="grader")
    assert said.exit_code == 2
    assert re.search(rf"Did you mean .*'{like}'", said.output)


def test_a_mistyped_machine_too(config: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'dgx-spark-1'"):
        Settings(config).config.machine("dgx-spark1")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(CONFIG)
    return tmp_path / "config.toml"


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        ([], "de", ["demo", "deploy"]),
        ([], "--v", ["--version"]),
        (["drain"], "d", ["dgx-spark-1"]),
        (["drain"], "", ["dgx-spark-1", "mac-studio-1"]),
        (["cluster", "logs", "dgx-spark-1"], "m", ["mac-studio-1"]),
        (["redis", "acl", "--machine"], "mac", ["mac-studio-1"]),
        (["service"], "s", ["store", "sandbox", "sweep"]),
        (["service"], "mac", ["mac-studio-1"]),
        (["token"], "", ["create"]),
    ],
)
def test_tab_completes(config: Path, words: list[str], incomplete: str, expected: list[str]) -> None:
    assert isinstance(grader, LazyGroup)
    complete = ShellComplete(grader, {}, "grader", "_GRADER_COMPLETE")
    found = complete.get_completions(["--config", str(config), *words], incomplete)
    assert [one.value for one in found] == expected


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_line_of_the_manual_switches_completion_on(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f'eval "$(_GRADER_COMPLETE={shell}_source grader)"'
    assert line in COMPLETION
    assert line in (Path(__file__).parents[3] / "docs/reference/cli.md").read_text(encoding="utf-8")
    monkeypatch.setenv("_GRADER_COMPLETE", f"{shell}_source")
    monkeypatch.setattr(sys, "argv", ["grader"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert f"_GRADER_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_tab_completes_nothing_where_the_configuration_is_wrong(tmp_path: Path) -> None:
    complete = ShellComplete(grader, {}, "grader", "_GRADER_COMPLETE")
    assert complete.get_completions(["--config", str(tmp_path / "none.toml"), "drain"], "") == []
