"""Every text of the pages is translated, completely, and none stands in a template untranslatable."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from babel.messages.catalog import Catalog, Message

from app.web import i18n

ROOT = Path(__file__).parents[3]
TEMPLATES = ROOT / "app" / "templates"
NAMES = {
    *(
        "Grader",
        "Redis",
        "GB",
        "MB",
        "KB",
        "UTC",
        "CSV",
        "PDF",
        "JSON",
        "ZIP",
        "SQLite",
        "PostgreSQL",
        "grader",
    ),
    *("config.toml", "Enter", "Esc", "Shift", "Ctrl", "Alt", "Tab", "SHA"),
}
"""Words that are the same in every language."""
ATTRIBUTES = re.compile(
    r'\b(?:aria-label|title|placeholder|alt|aria-description)="([^"{]*[A-Za-z]{3}[^"{]*)"'
)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("translations", str(ROOT / "scripts" / "translations"))
    spec = importlib.util.spec_from_loader("translations", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def texts(script: ModuleType) -> Catalog:
    found: Catalog = script.texts()
    return found


def others() -> list[str]:
    return [one for one in i18n.languages() if one != i18n.ENGLISH]


def parts(text: object) -> list[str]:
    return [text] if isinstance(text, str) else list(text)  # type: ignore[call-overload]


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"%\((\w+)\)[sd]", text)) | set(re.findall(r"(?<!%)(?:%%)*(%[^(%\s])", text))


def test_there_is_a_second_language() -> None:
    assert i18n.title_of("de") == "Deutsch"
    assert "de" in others()


@pytest.mark.parametrize("code", others())
def test_every_text_is_translated(script: ModuleType, texts: Catalog, code: str) -> None:
    """`scripts/translations` adds what is new; then translate what it names."""
    there: Catalog = script.load(code)
    known = {str(m.id): m for m in there if m.id}
    wanted = {str(m.id) for m in texts if m.id}
    assert sorted(wanted - set(known)) == []
    assert sorted(set(known) - wanted) == []
    assert script.missing(there) == []
    assert [m.id for m in known.values() if m.fuzzy] == []


@pytest.mark.parametrize("code", others())
def test_placeholders_and_spaces_agree(script: ModuleType, code: str) -> None:
    wrong = [m.id for m in script.load(code) if m.id and not _agrees(m)]
    assert wrong == []


def _agrees(message: Message) -> bool:
    ids, strings = parts(message.id), parts(message.string)
    # the singular may leave out its number, in any language
    allowed = set().union(*map(placeholders, ids))
    needed = placeholders(ids[-1])
    if not (needed <= placeholders(strings[-1]) and set().union(*map(placeholders, strings)) <= allowed):
        return False
    edges = [(one[:1].isspace(), one[-1:].isspace()) for one in (ids[0], *strings)]
    markup = [sorted(re.findall(r"</?\w+", one)) for one in (ids[-1], strings[-1])]
    return len(set(edges)) == 1 and markup[0] == markup[1]


@pytest.mark.parametrize(
    "file", sorted(TEMPLATES.rglob("*.html")), ids=lambda f: str(f.relative_to(TEMPLATES))
)
def test_no_template_has_bare_english(file: Path) -> None:
    assert bare(file.read_text("utf-8")) == []


def bare(text: str) -> list[str]:
    """What stands in a template outside `_()` and `{% trans %}` and looks like words."""
    text = re.sub(r"\{#.*?#\}|<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"\{%-?\s*trans\b.*?endtrans\s*-?%\}", "", text, flags=re.S)
    labels = ATTRIBUTES.findall(re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", text, flags=re.S))
    text = re.sub(r"\{%.*?%\}", "", text, flags=re.S)
    said = re.findall(r"\{\{(.*?)\}\}", text, flags=re.S)
    text = re.sub(r"\{\{.*?\}\}", " ", text, flags=re.S)
    text = re.sub(r"<(code|pre|kbd|samp)\b.*?</\1>", "", text, flags=re.S)
    text = re.sub(r"<[^>]*>", "\n", text)
    lines = [" ".join(line.split()) for line in [*text.split("\n"), *labels]]
    lines += [words for one in said for words in _spoken(one)]
    examples = re.compile(r"[a-z0-9]+([-,@.][a-z0-9@.]+)+|id,name,email.*")
    said = [line for line in lines if not examples.fullmatch(line) and not re.search(r'="', line)]
    return [line for line in said if set(re.findall(r"[A-Za-z][\w.]{2,}", line)) - NAMES]


def _spoken(expression: str) -> list[str]:
    """Sentences in an expression that nothing translates: words with a blank between, in quotation marks."""
    rest = re.sub(r"""\b(?:_|ngettext)\(\s*(?:"[^"]*"|'[^']*')(?:\s*,\s*"[^"]*")?""", "", expression)
    strings = re.findall(r'"([^"]*)"(\s*:)?', rest)
    found = [words for words, key in strings if not key]  # not what is looked up
    return [
        words for words in found if re.search(r"[A-Za-z]{3,} [a-z]{2,}", words) and not set("-=") & set(words)
    ]


def test_bare_english_is_found() -> None:
    assert bare("<p>Hello there</p>") == ["Hello there"]
    assert bare('<a title="Carry on">{{ _("x") }}</a>') == ["Carry on"]
    assert bare('<p>{{ {"a": "not graded yet"}[b] }}</p>') == ["not graded yet"]
    fine = '<p class="text-end">{{ _("Go on now", a="b") }} {% trans %}Hello{% endtrans %} · 12 GB</p>'
    assert bare(fine) == []
