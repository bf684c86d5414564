"""The documentation: commands, links, tables and names in it are those of the code."""

from __future__ import annotations

import json
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from babel.messages.pofile import read_po

from app.api.resources.submissions import SubmissionAccepted, SubmissionStatus
from cli.main import grader
from grading.checks.manipulation.flags import CODE as MANIPULATION
from grading.checks.run_flags import BROKEN
from grading.config import settings as config
from grading.domain.learning_platforms import LEARNING_PLATFORMS
from workers.machine.engines import open_engine

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "samples").glob("*.md")])
FENCE = re.compile(r"^ *```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
CODE = "grading workers app cli grader_client bench migrations scripts tests samples docs".split()
PATH = re.compile(rf"^(?:{'|'.join(CODE)})/[\w./-]*$")
NAME = re.compile(r"^[A-Za-z_][\w.]*$")
FIRST_CELL = re.compile(r"^\| (.*?) \|", re.MULTILINE)
QUOTED = re.compile(r"“(.+?)”")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> Iterator[str]:
    """The fenced blocks in a language."""
    for found in FENCE.finditer(page.read_text(encoding="utf-8")):
        if found[1] == language:
            yield found[2]


def inline(page: Path) -> list[str]:
    """What stands between backticks outside of fenced blocks."""
    return INLINE.findall(FENCE.sub("", page.read_text(encoding="utf-8")))


def command_lines(page: Path) -> Iterator[str]:
    """Shell lines, continued ones joined, comments left out."""
    for block in blocks(page, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            yield re.sub(r"\s+#.*$", "", line).strip()
    yield from inline(page)


def calls(program: str) -> list[tuple[str, list[str]]]:
    """(page, words behind the program) of every call in the documentation."""
    found = []
    for page in PAGES:
        for line in command_lines(page):
            words = line.split()
            if words and words[0] in (program, f".venv/bin/{program}") and len(words) > 1:
                found.append((name(page), words[1:]))
    return found


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {(page, words[0]) for page, words in calls("make") if words[0] != "…"}
    assert {"demo", "test"} <= {target for page, target in named if page == "README.md"}
    assert [one for one in named if one[1] not in targets] == []


def test_commands_and_options_exist() -> None:
    seen = [(page, problem) for page, words in calls("grader") if (problem := wrong(words))]
    assert seen == []
    assert {"worker", "web", "store", "sweep", "user", "doctor"} <= {words[0] for _, words in calls("grader")}


def wrong(words: list[str]) -> str | None:
    """What is wrong with a call of `grader`, if anything."""
    command: click.Command = grader
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-") and rest[0] != "COMMAND":
        below = command.get_command(click.Context(command), rest[0])
        if below is None:
            return f"no command {rest[0]!r} in {' '.join(words)!r}"
        command = below
        rest.pop(0)
    parameters = (*command.params, *grader.params)
    known = {"--help", *(option for parameter in parameters for option in parameter.opts)}
    unknown = [word for word in rest if word.startswith("--") and word.strip("[],.") not in known]
    return f"no options {unknown} in {' '.join(words)!r}" if unknown else None


def test_a_wrong_call_would_be_found() -> None:
    assert wrong(["worker", "dgx-spark-1", "--engine", "rules"]) is None
    assert wrong(["workers"]) is not None
    assert wrong(["user", "remove"]) is not None
    assert wrong(["submit", "--studnet", "ada"]) is not None


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name(page)}: {target}"
        assert not anchor or anchor in anchors(file), f"{name(page)}: {target}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_screenshot_is_shown() -> None:
    shown = {
        found for page in PAGES for found in re.findall(r"screens/([\w-]+\.webp)", page.read_text("utf-8"))
    }
    assert {one.name for one in (ROOT / "docs" / "screens").iterdir()} == shown


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_lists_and_what_is_in_them_are_read_alike_everywhere(page: Path) -> None:
    """The site needs an empty line before a list, and four spaces before what belongs to an item."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^ {1,3}(?:```|\||[-*] |\d+\. ).*", text, re.MULTILINE) == []
    assert re.findall(r"^[^\s#|<-][^\n]*\n(?:- |1\. ).*", text, re.MULTILINE) == []


def test_messages_that_tables_quote_exist() -> None:
    with (ROOT / "app/translations/de.po").open("rb") as file:
        messages = [message.id for message in read_po(file)]
    texts = [text if isinstance(text, str) else "\n".join(text) for text in messages]
    texts += [path.read_text("utf-8") for top in CODE[:4] for path in (ROOT / top).rglob("*.py")]
    known = "\n".join(texts)
    quoted = {
        (name(page), part.strip())
        for page in PAGES
        for cell in FIRST_CELL.findall(page.read_text("utf-8"))
        for message in QUOTED.findall(cell)
        for part in message.split("…")
    }
    assert len(quoted) > 10
    assert [found for found in sorted(quoted) if found[1] not in known] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_exist(page: Path) -> None:
    named = {word for word in inline(page) if PATH.match(word)}
    assert [word for word in sorted(named) if not (ROOT / word).exists()] == []


def test_each_threat_has_a_test_or_is_said_not_to_be_held() -> None:
    """Of each boundary, every letter of STRIDE."""
    text = (ROOT / "docs" / "explanation" / "threat-model.md").read_text("utf-8")
    boundaries = re.split(r"^### ", text.partition("## Boundaries")[2].partition("\n## ")[0], flags=re.M)[1:]
    assert len(boundaries) == 8
    for boundary in boundaries:
        rows = re.findall(r"^\| ([STRIDE]) \| (.+?) \| (.+) \| (.+) \|$", boundary, re.MULTILINE)
        assert {letter for letter, *_ in rows} == set("STRIDE"), boundary.splitlines()[0]
        for _, threat, measure, shown in rows:
            assert ("`tests/" in shown) or (shown == "none" and "not held" in measure), threat


def test_documents_that_messages_and_files_name_exist() -> None:
    tops = [*CODE[:8], "deploy", "scripts", ".github"]
    files = [
        *ROOT.glob("*.*ml"),
        *(path for top in tops for path in (ROOT / top).rglob("*") if path.is_file()),
    ]
    kinds = (".py", ".html", ".toml", ".yml", ".po", ".css", ".conf", "")
    texts = {name(file): file.read_text(encoding="utf-8") for file in files if file.suffix in kinds}
    named = {(file, page) for file, text in texts.items() for page in re.findall(r"docs/[\w/-]+\.md", text)}
    assert len(named) > 20
    assert [found for found in sorted(named) if not (ROOT / found[1]).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_services_of_the_server_are_stopped_and_started_together(page: Path) -> None:
    """Who restores while one of them runs is refused, or writes beside it."""
    every, text = {"web", "store", "sandbox", "sweep", "gateway"}, page.read_text(encoding="utf-8")
    lists = [set(re.findall(r"grader-(\w+)", line)) for line in re.findall(r"systemctl .*", text)]
    lists += [set(words.split()) for words in re.findall(r"for part in ([\w ]+);", text)]
    assert [found for found in lists if found & every and found != every] == []


def test_compose_is_called_as_docker_does() -> None:
    old = re.compile(r"docker-compose (?:up|down|run|exec|--|-f|build|pull|logs|ps)")
    files = [*PAGES, *ROOT.glob("docker-compose.yml"), *(ROOT / "deploy").rglob("*.y*ml")]
    assert [name(file) for file in files if old.search(file.read_text(encoding="utf-8"))] == []


def test_names_in_the_architecture_are_in_the_code() -> None:
    suffixes = (".py", ".toml", ".yml", ".html")
    sources = [p for top in CODE[:6] for p in (ROOT / top).rglob("*") if p.suffix in suffixes]
    words = set(re.findall(r"\w+", "\n".join(p.read_text(encoding="utf-8") for p in sources)))
    words |= set(CODE) | {"Makefile", "toml", "NAME"}
    pages = (
        ROOT / "ARCHITECTURE.md",
        *(ROOT / "docs" / page for page in ("explanation/internals.md", "explanation/invariants.md")),
    )
    named = {word for page in pages for word in inline(page) if NAME.match(word) and "/" not in word}
    assert len(named) > 60
    assert [word for word in sorted(named) if word.rstrip("_").rpartition(".")[2] not in words] == []


def test_variables_are_read_somewhere() -> None:
    places = [*CODE[:4], "tests/faults"]
    composed = [ROOT / "docker-compose.yml", *(ROOT / "deploy").rglob("docker-compose.yml")]
    files = [*composed, *(p for top in places for p in (ROOT / top).rglob("*.py"))]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"\bGRADER_[A-Z_]+[A-Z]\b", text))
    made_of_names = ("GRADER_LMS", "GRADER_EVENTS", "GRADER_SIGN_ON")
    made_of_names += tuple(f"GRADER_{one.upper()}" for one in LEARNING_PLATFORMS)
    given = {v for v in named if not v.startswith(made_of_names)}
    assert "GRADER_REDIS_URL" in given
    assert [v for v in sorted(given) if v not in code] == []


def test_tables_from_the_code_are_up_to_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scripts/docs", "--check"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    script = runpy.run_path(str(ROOT / "scripts" / "docs"))
    assert (script["main"](), capsys.readouterr().out) == (0, ""), "run scripts/docs"


def test_examples_of_the_api_have_its_fields() -> None:
    accepted, status, *_ = (
        json.loads(block) for block in blocks(ROOT / "docs/reference/http-api.md", "json")
    )
    assert set(accepted) == set(SubmissionAccepted.model_fields)
    assert set(status) == set(SubmissionStatus.model_fields)
    assert SubmissionStatus.model_fields["queue"].annotation is not None
    timing = dict.fromkeys(status["timing"], "2026-01-01T00:00:00Z")
    SubmissionStatus.model_validate({**status, "timing": timing})


def test_examples_of_the_configuration_are_valid() -> None:
    (example,) = blocks(ROOT / "docs/reference/configuration.md", "toml")
    (machine,) = config.parse(tomllib.loads(example)).machines
    assert machine.name == "lab-pc"
    parts = [machine.engines]
    for block in blocks(ROOT / "docs/reference/engines.md", "toml"):
        engines = tomllib.loads(block)["machines"]["engines"]
        parts.append({kind: config.EngineSettings.model_validate(value) for kind, value in engines.items()})
    for engines in parts:
        for kind, settings in engines.items():
            url = {"url": settings.url} if settings.url else {}
            open_engine(settings.kind or kind, {**url, **settings.options}).close()


def test_every_flag_is_explained() -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for part in ("grading", "workers")
        for path in (ROOT / part).rglob("*.py")
    ]
    codes = {
        code
        for text in sources
        for code in re.findall(r'(?:\bcode=|Flag\.of\()"([a-z_]+)"', text)
        if re.search(r"\bFlag(\.of)?\(", text)
    }
    codes |= {MANIPULATION, BROKEN}
    assert {"disagreement", "answer_shortened"} <= codes
    section = (
        (ROOT / "docs" / "reference" / "assignments.md").read_text(encoding="utf-8").partition("## Flags")[2]
    )
    assert codes == set(
        re.findall(r"`([a-z_]+)`", "".join(FIRST_CELL.findall(section.partition("\n## ")[0])))
    )
