"""Places in short, as prompts show them and models give them: `1:3:12` is document 1, cell 3, line 12.

A quote is one text that begins with its place: an object with a name for each number would cost a model three
times the tokens, and a schema that names documents would be another one for each student.
"""

from __future__ import annotations

import re

from grading.domain.model import Document, Location

PLACE_CHARS = 12
"""Characters of a place and the blank after it: at most `99:9999:999 `."""
_PLACE = re.compile(
    r"^\W{0,2}(?P<document>\d{1,3}):(?P<one>\d{1,6})(?::(?P<two>\d{1,6}))?(?!\w|:\d)\W{0,2}?(?:\s+|$)"
)


def split_place(said: str, documents: tuple[Document, ...]) -> tuple[Location | None, str]:
    """The place at the beginning of `said`, whether it exists or not, and the words after it.

    No place when it names no document. Two numbers are a document and a cell of a notebook, or a line of
    another file. Cells count in notebooks only, as everywhere. Line 0 stands for an output,
    cell 0 for the whole file.
    """
    found = _PLACE.match(said)
    if found is None:
        return None, said
    words = said[found.end() :]
    number = int(found["document"])
    if not 1 <= number <= len(documents):
        return None, words or said
    document = documents[number - 1]
    one, two = int(found["one"]), int(found["two"] or 0)
    if document.kind == "notebook":
        return Location(document=document.path, cell=one or None, line=two or None), words
    return Location(document=document.path, line=(two if found["two"] else one) or None), words
