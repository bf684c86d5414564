"""What single lines tell, as a table: pattern, remark, advice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from grading.domain.model import Location

Severity = Literal["praise", "note", "minor", "major"]


@dataclass(frozen=True)
class Advice:
    """What to do, why, how, and a short example."""

    what: str
    why: str
    how: str
    example: str


@dataclass(frozen=True)
class Remark:
    """One finding, and advice where there is some."""

    severity: Severity
    title: str
    detail: str
    location: Location | None = None
    advice: Advice | None = None


@dataclass(frozen=True)
class LineRule:
    """A remark for every line that matches."""

    language: Literal["r", "python", "any"]
    pattern: re.Pattern[str]
    severity: Severity
    title: str
    detail: str
    advice: Advice
    strings: bool = False
    """Whether what is inside strings counts."""


_RELATIVE = Advice(
    "Use paths relative to the project",
    "A path of your own computer does not exist on anybody else's.",
    "Keep the files in a folder beside your code and name them from there.",
    '"data/input.csv"',
)

UNNAMED_NUMBER = "A number without a name"

LINE_RULES = (
    LineRule(
        "any",
        re.compile(r"""["'](?:[A-Za-z]:[\\/]|/(?:home|Users|mnt|content)/|~/)"""),
        "minor",
        "Path of one computer",
        "This path exists only where you wrote it, so nobody else can run the line.",
        _RELATIVE,
        strings=True,
    ),
    LineRule(
        "r",
        re.compile(r"\bsetwd\s*\("),
        "minor",
        "setwd() in the code",
        "It changes the folder for everything after it and fails on other computers.",
        _RELATIVE,
    ),
    LineRule(
        "r",
        re.compile(r"(?<![\w.$])[TF](?![\w.(]|\s*(?:<-|=[^=]))"),
        "note",
        "T or F instead of TRUE or FALSE",
        "T and F are ordinary variables that can be overwritten.",
        Advice(
            "Write TRUE and FALSE", "T and F can be redefined by accident.", "Spell them out.", "na.rm = TRUE"
        ),
    ),
    LineRule(
        "r",
        re.compile(r"\battach\s*\("),
        "minor",
        "attach() hides where names come from",
        "Columns then mix with your own variables and can mask them.",
        Advice(
            "Name the data where you use it",
            "It keeps columns and variables apart.",
            "Use the pipe, with(), or the dollar sign.",
            "with(sales, sum(units))",
        ),
    ),
    LineRule(
        "r",
        re.compile(r"[!=]=\s*NA\b"),
        "major",
        "Comparison with NA",
        "Comparing with NA gives NA, never TRUE, so the filter does not do what it seems to.",
        Advice(
            "Test for missing values with is.na()",
            "NA means unknown, and unknown == NA is unknown too.",
            "Replace the comparison by is.na(), with ! for its opposite.",
            "filter(!is.na(column))",
        ),
    ),
    LineRule(
        "python",
        re.compile(r"[!=]=\s*None\b"),
        "minor",
        "Comparison with None by ==",
        "None is a single object; == can be redefined by the other side.",
        Advice(
            "Compare with `is`", "It asks for the object itself.", "Write `is None`.", "if value is None:"
        ),
    ),
    LineRule(
        "python",
        re.compile(r"^\s*except\s*:"),
        "major",
        "except without a kind of error",
        "It also hides typing mistakes and Ctrl-C, so real faults stay unseen.",
        Advice(
            "Catch only the error you expect",
            "Everything else should stop the program where it happens.",
            "Name the class of the error.",
            "except ValueError:",
        ),
    ),
    LineRule(
        "r",
        re.compile(r"(\w+)\s*<-\s*(?:c|append|rbind|cbind|bind_rows)\s*\(\s*\1\s*,"),
        "minor",
        "A vector that grows step by step",
        "Each step copies all that is there, which becomes slow with real data.",
        Advice(
            "Let one call work on the whole vector",
            "R is fast on vectors and slow on growing them.",
            "Use a vectorised expression or sapply().",
            "revenue <- units * unit_price",
        ),
    ),
    LineRule(
        "python",
        re.compile(r"(\w+)\s*=\s*\1\s*\+\s*\[|(\w+)\s*=\s*(?:pd\.)?concat\(\s*\[\s*\2\s*,"),
        "minor",
        "A list that is rebuilt at every step",
        "Each step copies all that is there.",
        Advice(
            "Append or use a comprehension", "It avoids the copies.", "Collect first.", "rows.append(row)"
        ),
    ),
    LineRule(
        "any",
        re.compile(r"\b(?:TODO|FIXME)\b|your (?:code|answer) here", re.IGNORECASE),
        "minor",
        "A placeholder is left over",
        "Nobody can tell whether this part is finished.",
        Advice(
            "Remove what is done, finish what is not",
            "A reader takes a placeholder for missing work.",
            "Search the file for TODO before you hand in.",
            "",
        ),
        strings=True,
    ),
    LineRule(
        "any",
        re.compile(r"[<>]=?\s*(?!0\b|1\b)\d{2,}(?:\.\d+)?\b|[*/]\s*0\.\d{2,}\b"),
        "note",
        UNNAMED_NUMBER,
        "A reader cannot know where this number comes from or what it means.",
        Advice(
            "Give the number a name",
            "A name says what it means, and there is one place to change it.",
            "Put it in a constant or a variable at the top.",
            "min_units = 10",
        ),
    ),
)
