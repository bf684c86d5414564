"""Sentences that speak about the grading of the work they stand in, whatever they say.

Phrases (`phrases.py`) find what their author thought of. This rule asks less: which *kinds* of words
(`grading_words.py`) meet in one sentence or two neighbours of a comment, a string, a text or an output. A
sentence about data has words of two kinds at times ("the highest score"). One about its own grading says who
grades or teaches, what the reader is asked to do, or what is an exception, and besides what is graded with,
how it must turn out, or which work is meant. So

- at least `NEEDED` kinds must meet, where who grades and by which rules count twice; two more without an
  `ANCHOR`, and one more in a sentence that gives a condition, as rules of a program do ("full points if …");
- one of them must be of `CORE`: without a word for who or what is graded with, nothing speaks about grading,
  unless one kind more meets and the work is among them;
- "the student" counts as speaking of the author only where the task has no students in it: what the class was
  given and the rubric decide that, never the submission;
- all must be of one language, as "note" and "points" are words of several.

In code, only comments and strings are read: names such as `score` or `levels` say nothing. What is found
holds the grade for a person and takes no points.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from grading.checks.manipulation.grading_words import WORDS, Kind

NEEDED = 3
WITHOUT_ANCHOR = 2
"""More that are needed where nothing but words for results meet."""
TWICE = frozenset[Kind]({"judge", "scheme"})
ANCHOR = frozenset[Kind]({"judge", "reader", "staff", "student", "plea", "exception"})
CORE = frozenset[Kind]({"judge", "reader", "scheme", "student", "matter"})
WITHOUT_WEIGHT = frozenset[Kind]({"condition", "nothing"})
LONGEST = 240
"""Characters of a sentence; a longer one is read in parts, as tables and lists have no full stops."""
SHORTEST = 3
"""Words below which a sentence is read together with the next one."""
LONGEST_WORD = 24

_SPOKEN = re.compile(
    r"(?P<comment>#[^\n]*(?:\n[ \t]*#[^\n]*){0,200})"
    r"|(?P<long>\"\"\".*?(?:\"\"\"|\Z)|'''.*?(?:'''|\Z))"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'",
    re.DOTALL,
)
_END = re.compile(r"[.!?。！？]+(?=[\s\"'*_)]|$)|;\s|\n\s*\n")
_WORD = re.compile(r"[^\W_]+")
_PATH = re.compile(r"[^\s/]*/[^\s/]*/\S*")
"""Folders and addresses say nothing."""
_Found = frozenset[tuple[str, Kind]]
_NONE: _Found = frozenset()


def about_grading(
    text: str, *, code: bool, of_students: bool = True, name: bool = False
) -> Iterator[tuple[int, str]]:
    """Index of the line (from 0) and the words of each sentence about the grading of the work.

    With `of_students` the task is about students, so that one who is named is nobody in particular. A `name`
    of a file is no sentence about data, so it needs no anchor.
    """
    for start, piece in _pieces(text) if code else [(0, text)]:
        before: _Found = _NONE
        for at, sentence in _sentences(piece):
            found = _kinds(sentence)
            if _speaks(found, of_students, name) or _speaks(found | before, of_students, name):
                yield text.count("\n", 0, start + at), sentence
            before = found


def speaks_of_students(text: str) -> bool:
    """Whether a text has a word for students."""
    return any(kind in ("person", "student") for _, kind in _kinds(text))


def says_a_result(word: str) -> bool:
    """Whether a word alone says how a criterion turned out, as "full" or "waived" do."""
    return any(kind in ("verdict", "exception") for _, kind in _kinds(word))


def _pieces(code: str) -> Iterator[tuple[int, str]]:
    """Comments and strings with where they begin; a string without a blank is a name or a path."""
    for hit in _SPOKEN.finditer(code):
        if " " in hit.group():
            yield hit.start(), hit.group()


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    begin = 0
    for hit in _END.finditer(text):
        if len(_WORD.findall(text, begin, hit.end())) >= SHORTEST:
            yield from _parts(begin, text[begin : hit.end()])
            begin = hit.end()
    yield from _parts(begin, text[begin:])


def _parts(begin: int, sentence: str) -> Iterator[tuple[int, str]]:
    if len(sentence) <= LONGEST:
        if sentence.strip():
            yield begin, sentence
        return
    for line in sentence.splitlines(keepends=True):
        for at in range(0, len(line), LONGEST):
            yield begin + at, line[at : at + LONGEST]
        begin += len(line)


def _speaks(found: _Found, of_students: bool, name: bool) -> bool:
    meant: Mapping[Kind, Kind] = {"person": "work" if of_students else "student"}
    return any(
        _enough({meant.get(kind, kind) for of, kind in found if of == language}, name)
        for language in {of for of, _ in found}
    )


def _enough(kinds: set[Kind], name: bool) -> bool:
    weight = len(kinds - WITHOUT_WEIGHT) + len(kinds & TWICE)
    needed = NEEDED + ("condition" in kinds)
    if not kinds & CORE:
        return "work" in kinds and bool(kinds & ANCHOR) and weight > needed
    return weight >= needed + (0 if name or kinds & ANCHOR else WITHOUT_ANCHOR)


def _kinds(sentence: str) -> _Found:
    """What kinds of words of which languages a sentence has."""
    words = [word[:LONGEST_WORD] for word in _WORD.findall(_PATH.sub(" ", _folded(sentence)))]
    _, pairs = _index()
    found: set[tuple[str, Kind]] = set()
    number = 0
    while number < len(words):
        following = pairs.get(words[number])
        both = _of(following, words[number + 1]) if following and number + 1 < len(words) else _NONE
        one = both or _alone(words[number])
        # to begin with "give" or "award" is to ask for it
        found |= {(of, "plea") if number == 0 and kind == "grant" else (of, kind) for of, kind in one}
        number += 2 if both else 1
    return frozenset(found)


@lru_cache(maxsize=20_000)
def _alone(word: str) -> _Found:
    return _of(_index()[0], word)


def _of(known: Mapping[str, _Found], word: str) -> _Found:
    """By the longest entry that fits, in each language."""
    found: dict[str, tuple[str, _Found]] = {}
    for entry in (*(word[:end] + "*" for end in range(1, len(word) + 1)), word):
        for language, kind in known.get(entry, _NONE):
            old = found.get(language, (entry, _NONE))
            found[language] = (entry, (old[1] if old[0] == entry else _NONE) | {(language, kind)})
    return _NONE.union(*(kinds for _, kinds in found.values()))


def _folded(text: str) -> str:
    """Without accents, in small letters."""
    if text.isascii():
        return text.lower()
    return "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))


@cache
def _index() -> tuple[Mapping[str, _Found], Mapping[str, Mapping[str, _Found]]]:
    """Kinds by word, and by the first and the second word of pairs."""
    single: dict[str, _Found] = {}
    pairs: dict[str, dict[str, _Found]] = {}
    for language, kinds in WORDS.items():
        for kind, listed in kinds.items():
            for entry in listed.split(","):
                for spelled in {_folded(entry.strip()), _folded(_without_umlauts(entry.strip()))} - {""}:
                    first, _, second = spelled.partition(" ")
                    known = pairs.setdefault(first, {}) if second else single
                    known[second or first] = known.get(second or first, _NONE) | {(language, kind)}
    return single, pairs


def _without_umlauts(word: str) -> str:
    return word.replace("ä", "ae").replace("ö", "oe").replace("ü", "ue").replace("ß", "ss")
