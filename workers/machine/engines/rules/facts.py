"""What can be read from a submission without a model: own lines, calls, prose, results, and their nouns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from grading.checks.parsing.code_facts import CodeFacts, Definition
from grading.checks.parsing.parser import FactReader, code_facts, grammar_of
from grading.checks.scope import COMMENT, Piece
from grading.documents.line_comparison import says_something
from grading.domain.document import Cell, Document, Location
from grading.domain.jobs import Job

_CALL = re.compile(r"(?<![\w.$])((?:[A-Za-z][\w.]*::)?[A-Za-z_][\w.]*)\s*\(")
_IMPORT = re.compile(r"^\s*(?:import\s+(?P<whole>[\w.]+)(?:\s+as\s+(?P<short>\w+))?|from\s)", re.MULTILINE)
LONGEST_LINE = 2_000
"""Characters of a line that are looked at; patterns take too long on longer ones."""
_NOT_CALLS = frozenset(
    {
        *("if", "for", "while", "function", "return", "and", "or", "not", "in", "is", "elif", "switch"),
        *("print", "cat", "c", "list", "library", "require", "def", "class", "except", "with", "lambda"),
        *("println", "printf", "log", "toString", "super", "this", "sizeof", "main"),
        *("paste", "paste0", "format", "sprintf", "str", "int", "float", "len", "range", "repeat"),
    }
)
_STRING = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])|\n{1,}")
_MARKDOWN = re.compile(r"^\s*(?:#+|[-*>]|\d+[.)])\s*|[*_`]")
_TO_GRADER = re.compile(
    r"\b(?:grader|grading (?:system|model|assistant)|full (?:marks|points|credit|score)|"
    r"maximum (?:points|score)|(?:ignore|disregard|forget) (?:all|any|the|every|previous|prior|your)|"
    r"system (?:prompt|message|note)|"
    r"instructions? (?:above|before|for the|to the)|award|highest level|100 (?:points|percent)|as an ai)\b",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"\b(?:because|therefore|since|so that|due to|as a result|which means|this means|leads? to|otherwise|"
    r"however|although|if we|would|whereas|instead of)\b",
    re.IGNORECASE,
)
_COMMENT_STEM = re.compile(r"^\s*#+\s?")
_TAG = re.compile(r"^@(?:param|returns?|throws|exception|author|version|since|see|examples?|export)\b\s*")
_BY_LINE = frozenset({"python", "r", "sql", ""})
"""Languages whose calls are read line by line; of others the grammar knows calls from definitions."""
FEWEST = 3
"""Words of a line of comment that count as something said."""


@dataclass(frozen=True)
class Line:
    """One line the student wrote."""

    text: str
    document: Document
    cell: Cell
    number: int
    stripped: str | None = None
    """The line without comments, where the grammar of its language is known."""
    said: str | None = None
    """What a line of a comment says, without the signs of the comment."""

    @property
    def location(self) -> Location:
        """Where it stands, as findings give places."""
        cell = self.cell.number if self.document.kind == "notebook" else None
        return Location(document=self.document.path, cell=cell, line=self.number)

    @property
    def bare(self) -> str:
        """The code without strings and comments."""
        if self.stripped is not None:
            return _STRING.sub('""', self.stripped).rstrip()
        return _STRING.sub('""', self.text).split("#", 1)[0].rstrip()

    @property
    def code(self) -> str:
        """The code with strings, without a comment that follows it."""
        masked = _STRING.sub(lambda m: "_" * len(m.group()), self.text)
        at = masked.find("#")
        return (self.text if at < 0 else self.text[:at]).rstrip()


@dataclass(frozen=True)
class Facts:
    """What one submission, or a part of it, shows."""

    cells: tuple[tuple[Document, Cell], ...]

    @classmethod
    def of(cls, job: Job, where: str | None = None) -> Facts:
        """Facts of the cells whose place matches `where`; of all cells without it or when it is not valid."""
        pairs = tuple((d, c) for d in job.documents for c in d.cells)
        if where is None:
            return cls(pairs)
        try:
            pattern = re.compile(where, re.IGNORECASE)
        except re.error:
            return cls(pairs)
        return cls(tuple((d, c) for d, c in pairs if pattern.search(c.place)))

    @cached_property
    def code(self) -> tuple[Line, ...]:
        """The student's lines of code and comments, without blank ones and the insides of long texts."""
        return tuple(self._lines("code"))

    def _lines(self, kind: str) -> Iterator[Line]:
        for document, cell in self.cells:
            if cell.kind != kind:
                continue
            lines = cell.lines
            texts = _text_lines(lines) if kind == "code" else frozenset()
            code = _stripped(document, cell) if kind == "code" else None
            for n in cell.added:
                if n <= len(lines) and lines[n - 1].strip() and n not in texts:
                    bare = code[n - 1][:LONGEST_LINE] if code is not None and n <= len(code) else None
                    yield Line(lines[n - 1][:LONGEST_LINE], document, cell, cell.first_line + n - 1, bare)

    @cached_property
    def coded(self) -> tuple[Line, ...]:
        """The student's lines that hold code, not comments alone."""
        return tuple(line for line in self.code if line.bare.strip())

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The code cells, parsed, with the lines that are the student's."""
        reader = _Remembering()
        return tuple(
            Piece(d, c, 1, len(c.lines), frozenset(c.added), reader)
            for d, c in self.cells
            if c.kind == "code"
        )

    @cached_property
    def says_something(self) -> bool:
        """Whether any line, also of the starter, is more than brackets, placeholders and a name."""
        return any(says_something(cell) for _, cell in self.cells)

    @cached_property
    def definitions(self) -> tuple[Definition, ...]:
        """The functions, classes and methods that the student wrote or changed."""
        return tuple(definition for piece in self.pieces for definition in piece.definitions)

    @cached_property
    def prose(self) -> tuple[Line, ...]:
        """The student's text lines; in scripts, which have none, long comments and documentation."""
        return self.written or tuple(self._commented())

    @cached_property
    def written(self) -> tuple[Line, ...]:
        """The student's lines of prose outside code."""
        return tuple(self._lines("markdown"))

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """What the student says in prose, without words addressed to whoever grades."""
        joined: list[str] = []
        previous: Line | None = None
        for line in self.prose:
            follows = (
                previous is not None and line.cell is previous.cell and line.number == previous.number + 1
            )
            joined.append((" " if follows else "\n") + _MARKDOWN.sub("", _said(line)).strip())
            previous = line
        found = (s.strip() for s in _SENTENCE.split("".join(joined)))
        return tuple(s for s in found if len(s.split()) >= 3 and not _TO_GRADER.search(s))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of the sentences, in lower case."""
        return tuple(w.lower() for s in self.sentences for w in re.findall(r"[^\W\d_][\w'-]*", s))

    @cached_property
    def reasons(self) -> int:
        """How many sentences argue."""
        return sum(bool(_REASON.search(s)) for s in self.sentences)

    @cached_property
    def calls(self) -> tuple[str, ...]:
        """Names of functions the student calls, once each, in order of appearance."""
        modules = {
            m["short"] or m["whole"] or ""
            for d, c in self.cells
            if d.language.lower() == "python"
            for m in _IMPORT.finditer(c.source)
        }
        names = (name for line in self.code for name in (*calls_in(line, modules), *self.parsed_calls(line)))
        return tuple(dict.fromkeys(names))

    def parsed_calls(self, line: Line) -> tuple[str, ...]:
        """What a line calls in a language whose grammar tells calls from definitions."""
        place = line.document.path, line.cell.number, line.number
        return tuple(self._parsed_calls.get(place, ()))

    @cached_property
    def _parsed_calls(self) -> dict[tuple[str, int, int], list[str]]:
        found: dict[tuple[str, int, int], list[str]] = {}
        for piece in self.pieces:
            if piece.facts.language in _BY_LINE or not piece.facts.parsed:
                continue
            for call in piece.facts.calls:
                if call.name.isidentifier() and call.name not in _NOT_CALLS and call.first in piece.added:
                    number = piece.cell.first_line + call.first - 1
                    found.setdefault((piece.document.path, piece.cell.number, number), []).append(call.name)
        return found

    @cached_property
    def comments(self) -> int:
        """The student's lines of comments and docstrings; code that was commented out is none."""
        comments = (c for piece in self.pieces for c in piece.comments if not c.code)
        return sum(bool(line.strip()) for comment in comments for line in comment.text.split("\n"))

    @cached_property
    def comment_words(self) -> int:
        """The words of these comments."""
        return sum(c.words for piece in self.pieces for c in piece.comments)

    def _commented(self) -> Iterator[Line]:
        """The student's lines of comments and documentation that say something."""
        for piece in self.pieces:
            document, cell, lines = piece.document, piece.cell, piece.cell.lines
            # answers are also given as texts in triple quotes
            texts = ((n, lines[n - 1]) for n in _text_lines(lines) if n in piece.added)
            for number, said in sorted({**dict(texts), **dict(_comment_lines(piece))}.items()):
                said = _TAG.sub("", said)
                if len(said.split()) >= FEWEST and number <= len(lines):
                    at = cell.first_line + number - 1
                    yield Line(lines[number - 1][:LONGEST_LINE], document, cell, at, said=said)

    @cached_property
    def errors(self) -> tuple[tuple[Document, Cell, str], ...]:
        """Cells that show an error, submitted or when the school ran them, with its text."""
        return tuple(
            (d, c, o.text) for d, c in self.cells for o in (*c.outputs, *c.played) if o.kind == "error"
        )

    @cached_property
    def not_run(self) -> tuple[tuple[Document, Cell], ...]:
        """Notebook cells with the student's code that nobody has run."""
        return tuple((d, c) for d, c in self._without_sign() if not c.played)

    @cached_property
    def run_here(self) -> tuple[tuple[Document, Cell], ...]:
        """Notebook cells with the student's code that only the school has run."""
        return tuple((d, c) for d, c in self._without_sign() if c.played)

    def _without_sign(self) -> Iterator[tuple[Document, Cell]]:
        """Notebook cells with the student's code that show no sign of having been run."""
        for document, cell in self.cells:
            own_code = document.kind == "notebook" and cell.kind == "code" and cell.added
            if own_code and cell.execution_count is None and not cell.outputs:
                yield document, cell

    @cached_property
    def outputs(self) -> int:
        """Cells of the student that show an output other than an error."""
        return sum(bool(c.added) and any(o.kind != "error" for o in c.outputs) for _, c in self.cells)

    @cached_property
    def results(self) -> int:
        """Cells of the student that gave an output other than an error, there or when the school ran them."""
        outputs = ((c, (*c.outputs, *c.played)) for _, c in self.cells)
        return sum(bool(c.added) and any(o.kind != "error" for o in found) for c, found in outputs)

    @cached_property
    def names(self) -> frozenset[str]:
        """Words of the code, for recognising them in prose."""
        found: set[str] = set()
        for _, cell in self.cells:
            if cell.kind == "code":
                found.update(re.findall(r"[A-Za-z][\w.]{3,}", cell.source))
        return frozenset(w.lower() for w in found if "_" in w or "." in w) | frozenset(
            map(str.lower, self.calls)
        )


def calls_in(line: Line, modules: Collection[str] = ()) -> list[str]:
    """The functions a line calls; methods without their object, functions of a module with it."""
    names: list[str] = []
    if _language(line.document, line.cell) not in _BY_LINE:
        return names
    python = line.document.language.lower() == "python"
    for name in _CALL.findall(line.bare):
        owner, _, last = name.rpartition(".")
        short = last if python and owner and owner not in modules else name
        if short not in _NOT_CALLS and not (python and line.bare.lstrip().startswith(("def ", "class "))):
            names.append(short)
    return names


def _text_lines(lines: list[str]) -> frozenset[int]:
    """The 1-based numbers of lines that lie inside a text in triple quotes."""
    inside, numbers = False, set()
    for n, raw in enumerate(lines, start=1):
        fences = raw.count('"""') + raw.count("'''")
        if inside or (fences and raw.strip().startswith(('"""', "'''"))):
            numbers.add(n)
        if fences % 2:
            inside = not inside
    return frozenset(numbers)


class _Remembering(FactReader):
    """Reads what was read for another criterion of the same job once."""

    def facts(self, source: str, language: str) -> CodeFacts:
        """What the code calls, defines and comments."""
        return _read(source, language)


@lru_cache(maxsize=32)
def _read(source: str, language: str) -> CodeFacts:
    return code_facts(source, language)


def _language(document: Document, cell: Cell) -> str:
    """The grammar of a cell; nothing where there is none."""
    return grammar_of(cell.language or document.language) or ""


def _stripped(document: Document, cell: Cell) -> list[str] | None:
    """The lines of a cell without comments; nothing for languages without a grammar."""
    language = _language(document, cell)
    return _read(cell.source, cell.language or document.language).code_lines if language else None


def _comment_lines(piece: Piece) -> Iterator[tuple[int, str]]:
    """Number and words of each line of the student's comments."""
    if not piece.facts.parsed:
        for number in piece.in_order:
            hit = COMMENT.match(piece.cell.lines[number - 1][:LONGEST_LINE])
            if hit:
                yield number, hit.group(1)
        return
    for comment in piece.comments:
        if not comment.code:
            yield from enumerate(comment.text.split("\n"), start=comment.first)


def _said(line: Line) -> str:
    return line.said if line.said is not None else _COMMENT_STEM.sub("", line.text)


def cites(sentence: str, names: Collection[str]) -> bool:
    """Whether a sentence names something of the code, as a word of its own."""
    return any(word in names for word in re.findall(r"[a-z][\w.]{3,}", sentence.lower()))


def join_within(sentences: Iterable[str], limit: int) -> str:
    """As many whole sentences, in order, as fit into `limit` characters; too long ones are passed over."""
    text = ""
    for sentence in sentences:
        sentence = sentence.strip()
        longer = f"{text} {sentence}".strip()
        if sentence and len(longer) <= limit:
            text = longer
    return text


def listed(names: Iterable[str], most: int = 3) -> str:
    """`a, b and c`."""
    chosen = list(names)[:most]
    if len(chosen) < 2:
        return "".join(chosen)
    return f"{', '.join(chosen[:-1])} and {chosen[-1]}"


_DATA = re.compile(
    r"\b(?:pandas|polars|numpy|matplotlib|seaborn|ggplot2?|dplyr|tidyverse|readr|tibble|DataFrame|dataframe)\b"
    r"|\bdata\.(?:frame|table)\b|\bread[._](?:csv|excel|table|delim|parquet|json)\w*|\bcsv\b|\$\w+"
    r"|\b(?:group_by|groupby|summari[sz]e|mutate|aggregate)\s*\("
)
"""Work on tables; the last name of `a$b` is a column of R."""
_CONSTANT = {
    "java": "static final int MIN_UNITS = 10;",
    "c": "#define MIN_UNITS 10",
    "cpp": "constexpr int min_units = 10;",
    "javascript": "const minUnits = 10;",
    "typescript": "const minUnits = 10;",
    "r": "min_units <- 10",
}
_DOC_FORMS = {
    "java": "Javadoc",
    "javascript": "JSDoc",
    "typescript": "JSDoc",
    "python": "a docstring",
    "r": "a roxygen comment",
}
_ORDER = ("class", "interface", "method", "function", "table", "view")
_PLURALS = {
    "class": "classes",
    "interface": "interfaces",
    "method": "methods",
    "constructor": "methods",
    "function": "functions",
    "table": "tables",
    "view": "views",
}


@dataclass(frozen=True)
class Nouns:
    """How to speak of a work: `parts` of it, a `step` of it, and whether it is about data in tables."""

    language: str
    data: bool
    notebook: bool

    @classmethod
    def of(cls, facts: Facts) -> Nouns:
        """Those of a whole submission."""
        code = [(d, c) for d, c in facts.cells if c.kind == "code"]
        spoken = [(c.language or d.language).lower() for d, c in code if c.added]
        spoken = spoken or [(c.language or d.language).lower() for d, c in code] or [""]
        language = max(dict.fromkeys(spoken), key=spoken.count)
        tables = language in ("python", "r") and any(_DATA.search(c.source[:200_000]) for _, c in code)
        notebook = any(d.kind == "notebook" for d, _ in facts.cells)
        return cls(language, tables or language == "sql", notebook)

    @property
    def step(self) -> str:
        """What code is parted into: `method`, `query` or `function`."""
        return {"java": "method", "sql": "query"}.get(self.language, "function")

    @property
    def steps(self) -> str:
        """Several of them."""
        return "queries" if self.step == "query" else f"{self.step}s"

    @property
    def whole(self) -> str:
        """What is run as one."""
        return "notebook" if self.notebook else "program" if self.language != "sql" else "script"

    @property
    def constant(self) -> str:
        """A number with a name, as it is written in the language."""
        return _CONSTANT.get(self.language, "min_units = 10")

    @property
    def doc_form(self) -> str:
        """The form in which its definitions are documented."""
        return _DOC_FORMS.get(self.language, "an added comment")


def kinds(facts: Facts) -> str:
    """What the student defined: `classes and methods`; in SQL or a short script perhaps nothing."""
    return together(definition.kind for definition in facts.definitions)


def together(names: Iterable[str]) -> str:
    """The plurals of kinds of definitions, in a fixed order."""
    found = {"method" if name == "constructor" else name for name in names}
    return listed((_PLURALS[name] for name in _ORDER if name in found), len(_ORDER))
