"""The nouns of the engine without a model: those of the language and of the kind of work."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from workers.machine.engines.rules.facts import Facts, listed

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
        """Those of a whole hand-in."""
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
        return _DOC_FORMS.get(self.language, "a comment")


def kinds(facts: Facts) -> str:
    """What the student defined: `classes and methods`; in SQL or a short script perhaps nothing."""
    return together(definition.kind for definition in facts.definitions)


def together(names: Iterable[str]) -> str:
    """The plurals of kinds of definitions, in a fixed order."""
    found = {"method" if name == "constructor" else name for name in names}
    return listed((_PLURALS[name] for name in _ORDER if name in found), len(_ORDER))
