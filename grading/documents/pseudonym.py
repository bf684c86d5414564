"""Takes what identifies a student out of documents before they leave the server."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel

from grading.documents.case_folding import fold, origins
from grading.documents.identity_fields import hide_form
from grading.documents.person_patterns import (
    COMMON_WORDS,
    all_parts,
    email_pattern,
    full_name_pattern,
    id_pattern,
    name_parts,
)
from grading.domain.document import Cell, Document, Location, Output
from grading.domain.errors import ConfigError

_SHORT = 6
"""Letters below which a full name in lower case may as well be two variables (`li, na`)."""
STUDENT, ID, EMAIL = "[student]", "[id]", "[email]"
KEPT = frozenset(
    ("criterion", "check", "code", "stage", "basis", "kind", "target", "item", "by", "undone_by")
)
"""Fields of values in which nothing is replaced: ids, codes and names of staff."""
T = TypeVar("T")
_USER_FOLDER = re.compile(
    r"(?P<before>(?:[A-Za-z]:[\\/]{1,4}|/)(?:Users|home)[\\/]{1,4})"
    r"(?!(?:Public|Shared|jovyan|rstudio|runner|user|root)\b)[^\\/\s\"'<>|:\[\]]+",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"(?:\b(?:name|names|student|author|by|from|mr|ms|mrs|dr|prof|dear|hi|hello"
    r"|i am|i'm|my name is|regards|yours)\b"
    r"|\[(?:student|id)\])[\s:,.*_=\"'<-]{0,6}$"
)


@dataclass(frozen=True)
class Identity:
    """What is known of a student: full names (also as "Last, First"), identifiers, e-mail addresses."""

    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()


def pseudonym_for(secret: bytes, student_id: str) -> str:
    """A stable pseudonym such as `Student-7F3A2C`. Raises ConfigError without a secret."""
    if not secret:
        raise ConfigError("There is no secret to make pseudonyms with; set the server's secret key.")
    digest = hmac.new(secret, student_id.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
    return f"Student-{digest[:6].upper()}"


def pseudonymise(documents: Sequence[Document], identity: Identity) -> tuple[Document, ...]:
    """The documents with names, identifiers and addresses replaced by `[student]`, `[id]` and `[email]`.

    Looks at sources, outputs, places, notes and paths. What a form asks for ("Student Name: …", `author:`)
    goes as well, known or not. Lines keep their numbers.
    """
    hide = _Hider(identity)
    taken: set[str] = set()
    result = []
    for document in documents:
        path = _unique(hide.path(document.path), taken)
        cells = tuple(_cell(cell, hide) for cell in document.cells)
        notes = tuple(hide.note(note, document.path, path) for note in document.notes)
        result.append(document.model_copy(update={"path": path, "cells": cells, "notes": notes}))
    return tuple(result)


def pseudonymise_texts(texts: Sequence[str], identity: Identity) -> list[str]:
    """The same replacements in other texts about the submission, such as messages of checks."""
    hide = _Hider(identity)
    return [hide.text(text) for text in texts]


def pseudonymise_value(value: T, identity: Identity) -> T:
    """The same replacements in all texts of a value about the submission, such as the grade of a criterion.

    Places name the documents as `pseudonymise` does, but for the numbers of equal paths. Names of staff and
    what programs compare (`KEPT`) stay.
    """
    made: T = _value(value, _Hider(identity))
    return made


def _value(value: Any, hide: _Hider) -> Any:
    if isinstance(value, str):
        return hide.text(value)
    if isinstance(value, Location):
        return value.model_copy(update={"document": hide.path(value.document)})
    if isinstance(value, BaseModel):
        fields = {name: _value(field, hide) for name, field in value if name not in KEPT}
        return value.model_copy(update=fields)
    if isinstance(value, Mapping):
        return {key: _value(one, hide) for key, one in value.items()}
    return tuple(_value(one, hide) for one in value) if isinstance(value, (tuple, list)) else value


def _cell(cell: Cell, hide: _Hider) -> Cell:
    source = hide_form(hide.text(cell.source), cell)
    changed = {"source": source, "place": hide.text(cell.place)}
    return cell.model_copy(
        update={**changed, "outputs": _outputs(cell.outputs, hide), "played": _outputs(cell.played, hide)}
    )


def _outputs(outputs: tuple[Output, ...], hide: _Hider) -> tuple[Output, ...]:
    return tuple(
        output.model_copy(update={"text": hide.text(output.text)}) if output.text else output
        for output in outputs
    )


def _unique(path: str, taken: set[str]) -> str:
    """The path, with a number if replacing made it the same as another's."""
    stem, dot, ending = path.rpartition(".")
    candidate, number = path, 1
    while candidate in taken:
        number += 1
        candidate = f"{stem}-{number}{dot}{ending}" if dot else f"{path}-{number}"
    taken.add(candidate)
    return candidate


_Decision = Callable[[str | None, str, int, str], bool]
"""Of a match its kind, its original text, where it starts in the folded text, and that text."""


def _is_name(kind: str | None, original: str, start: int, folded: str) -> bool:
    """Whether what matched is a person here, and not a word that happens to be the same."""
    if kind not in ("full", "part"):
        return True
    parts = [part for part in re.split(r"[\W_]+", fold(original)) if part]
    common = all(part in COMMON_WORDS for part in parts)
    upper = original[:1].isupper() or not original.isascii()
    if kind == "full":
        short = sum(map(len, parts)) < _SHORT
        if upper or not (short or (common and "," in original)):
            return True
    elif upper and not common:
        return True
    return (kind == "full" or upper or not common) and bool(
        _CONTEXT.search(folded[max(0, start - 40) : start])
    )


def _is_name_in_path(kind: str | None, original: str, start: int, folded: str) -> bool:
    return kind != "part" or original[:1].isupper() or fold(original) not in COMMON_WORDS


class _Hider:
    """The patterns of one student."""

    def __init__(self, identity: Identity) -> None:
        full = [pattern for name in identity.names for pattern in full_name_pattern(name)]
        logins = [local for mail in identity.emails if (local := _login(mail))]
        ids = [pattern for value in (*identity.ids, *logins) if (pattern := id_pattern(value))]
        self.parts = {part for name in identity.names for part in name_parts(name)}
        groups = {
            "email": [email_pattern(mail) for mail in identity.emails if "@" in mail] + _mails_of(full + ids),
            "full": full,
            "id": ids,
            "part": [rf"(?<![a-z0-9])(?:{'|'.join(map(re.escape, self._longest()))})(?![a-z0-9])"]
            * bool(self.parts),
        }
        self._body = "|".join(f"(?P<{name}>{'|'.join(found)})" for name, found in groups.items() if found)
        known = {fold(mail.strip()) for mail in identity.emails if "@" in mail}
        known |= {fold(value.strip()) for value in (*identity.ids, *logins)}
        known |= {part for name in identity.names for part in all_parts(name)}
        self.needles = tuple(filter(None, known))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Made when it is needed: most work does not name who wrote it."""
        return re.compile(self._body)

    def _longest(self) -> list[str]:
        return sorted(self.parts, key=lambda part: (-len(part), part))

    def text(self, text: str) -> str:
        """A text of several lines; single names only where they are written like names."""
        return self._replace(text, _is_name)

    def path(self, path: str) -> str:
        """A path, in which single names count in any case unless they are common words."""
        return self._replace(path, _is_name_in_path)

    def note(self, note: str, old: str, new: str) -> str:
        """A remark, in which a path is replaced as it is elsewhere."""
        return self.text(note.replace(old, new))

    def _replace(self, text: str, is_name: _Decision) -> str:
        if not text:
            return text
        text = _USER_FOLDER.sub(rf"\g<before>{STUDENT}", text)
        if not self._body:
            return text
        folded = fold(text)
        if not any(needle in folded for needle in self.needles):  # far faster than the pattern
            return text
        way_back: list[int] | None = None
        pieces: list[str] = []
        at = 0
        for match in self.pattern.finditer(folded):
            if not pieces:
                way_back = origins(text)
            start = match.start() if way_back is None else way_back[match.start()]
            end = match.end() if way_back is None else way_back[match.end() - 1] + 1
            kind = match.lastgroup
            if start < at or not is_name(kind, text[start:end], match.start(), folded):
                continue
            pieces += [text[at:start], {"email": EMAIL, "id": ID}.get(kind or "", STUDENT)]
            at = end
        return "".join([*pieces, text[at:]]) if pieces else text


def _mails_of(patterns: list[str]) -> list[str]:
    """Addresses that have a name or identifier in them, known or not."""
    return [
        rf"(?<![\w.+-])(?:[\w+-]{{1,20}}\.)?{pattern}[\w.+-]{{0,20}}@[\w.-]{{2,80}}" for pattern in patterns
    ]


def _login(mail: str) -> str | None:
    """The part of an address before the @ where it is telling enough to be looked for by itself."""
    local = mail.partition("@")[0]
    return local if len(local) >= 7 or (len(local) >= 4 and not local.isalpha()) else None
