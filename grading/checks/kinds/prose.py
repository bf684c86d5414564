"""Kinds of checks on prose, and on what was left undone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from grading.checks import field_labels
from grading.checks.context import Context, Finding
from grading.checks.kind import CheckKind
from grading.checks.scope import COMMENT, Piece, Scope, lines_of
from grading.domain.messages import Message, MessageType, define_message, define_plural
from grading.domain.patterns import MAX_TEXT, matches

# TODO only in capitals: "todo" is a common word in Spanish and Portuguese
PLACEHOLDER = re.compile(
    r"\bTODO\b|\bFIXME\b|(?i:\byour (?:code|answer|response|solution)s? (?:goes )?here\b)"
    r"|(?i:\b(?:dein|ihr)e? (?:code|antwort|lösung) hier\b)"
)
NO_HEADING = define_message("check.words.no_heading", "no heading says where the answer is")
NO_ANSWER = define_message("check.words.no_answer", "no answer was written here")
WORDS = define_plural(
    "check.words.found",
    "%(count)s word of at least %(at_least)s",
    "%(count)s words of at least %(at_least)s",
)
AT_LEAST_WORDS = define_message("check.words.label", "at least %(count)s words")
NO_PLACEHOLDER = define_message("check.no_todo.none", "no placeholder is left")
PLACEHOLDERS = define_plural(
    "check.no_todo.left",
    "%(count)s place still with a placeholder such as “%(example)s”",
    "%(count)s places still with a placeholder such as “%(example)s”",
)
FEWEST_WORDS = 15
WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
EAST_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
MARKUP = re.compile(
    r"https?://\S+|<!--.{0,2000}?-->|<[^<>\n]{1,200}>|!?\[([^\]\n]{0,200})\]\([^)\n]{0,500}\)", re.DOTALL
)


class Words(CheckKind):
    """The student's own prose has at least this many words. Share = words / at_least, at most 1."""

    kind: Literal["words"] = "words"
    at_least: int = Field(gt=0)

    title: ClassVar[MessageType] = define_message("check.words.title", "Minimum number of words")
    about: ClassVar[MessageType] = define_message(
        "check.words.about", "The student's text has at least this many words."
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "at_least": field_labels.AT_LEAST,
    }
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the asked number of words; comments count where there is no prose."""
        if scope.fallback:  # else the same comments would answer every question
            return Finding(0.0, NO_HEADING())
        pieces = scope.added
        count = sum(count_words(_prose(p)) for p in pieces if p.cell.kind != "code")
        first = next((p for p in pieces if p.cell.kind != "code"), None)
        if not count:
            count = sum(count_words(_comments(p)) for p in pieces if p.cell.kind == "code")
            first = next(iter(pieces), None)
        if not count:
            return Finding(0.0, NO_ANSWER())
        message = WORDS(count=count, at_least=self.at_least)
        return Finding(min(1.0, count / self.at_least), message, first.at() if first else None)

    def default_label(self) -> Message:
        """After what it asks for."""
        return AT_LEAST_WORDS(count=self.at_least)


class NoTodo(CheckKind):
    """No placeholder: TODO, FIXME, "your code here", "your answer here", or `extra` patterns."""

    kind: Literal["no_todo"] = "no_todo"
    extra: tuple[str, ...] = ()

    title: ClassVar[MessageType] = define_message("check.no_todo.title", "No placeholders")
    about: ClassVar[MessageType] = define_message(
        "check.no_todo.about",
        'The submission has no placeholder: TODO, FIXME, "your code here", "your answer here", or '
        "`extra` patterns.",
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "extra": define_message("check.no_todo.extra", "Other placeholders"),
    }
    usual_label: ClassVar[MessageType] = NO_PLACEHOLDER
    pattern_keys: ClassVar[tuple[str, ...]] = ("extra",)
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the cells in scope without a placeholder; untouched cells without one do not count."""
        left = [(p, line) for p in scope.pieces if (line := _placeholder(p, self.extra)) is not None]
        marked = {id(p) for p, _ in left}
        clean = [p for p in scope.added if id(p) not in marked]
        if not left:
            return Finding(1.0, NO_PLACEHOLDER())
        piece, line = left[0]
        example = lines_of(piece.cell.source)[line - 1].strip()[:50]
        message = PLACEHOLDERS(count=len(left), example=example)
        return Finding(len(clean) / (len(clean) + len(left)), message, piece.at(line))


def count_words(text: str) -> int:
    """Words of a text; two characters of Chinese, Japanese or Korean count as one."""
    text = MARKUP.sub(lambda hit: hit.group(1) or " ", text[:MAX_TEXT])
    characters = len(EAST_ASIAN.findall(text))
    return len(WORD.findall(EAST_ASIAN.sub(" ", text))) + (characters + 1) // 2


def _prose(piece: Piece) -> str:
    lines = piece.own.split("\n")
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def _comments(piece: Piece) -> str:
    """Comments of at least fifteen words in a row of lines: shorter ones explain code and answer nothing.

    Nor does code that was commented out.
    """
    code, lines = piece.facts.code_lines, lines_of(piece.cell.source)
    unused = {n for c in piece.facts.comments if c.code for n in range(c.first, c.last + 1)}
    runs: list[list[str]] = []
    last = -1
    for n in piece.in_order:
        hit = COMMENT.match(lines[n - 1])
        if hit and n not in unused and not (n <= len(code) and code[n - 1].strip()):
            if n != last + 1:
                runs.append([])
            runs[-1].append(hit.group(1))
            last = n
    texts = ["\n".join(run) for run in runs]
    return "\n".join(text for text in texts if count_words(text) >= FEWEST_WORDS)


def _placeholder(piece: Piece, extra: tuple[str, ...]) -> int | None:
    lines = lines_of(piece.cell.source)
    for number in range(piece.first, min(piece.last, len(lines)) + 1):
        if PLACEHOLDER.search(lines[number - 1][:2000]):
            return number
    text = "\n".join(lines[piece.first - 1 : piece.last])
    for pattern in extra:
        hits = matches(pattern, text, at_most=1)
        if hits:
            return piece.first + hits[0][0] - 1
    return None
