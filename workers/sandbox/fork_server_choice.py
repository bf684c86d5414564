"""Which fork server a request can use: one that has imported the packages that its code asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from grading.execution.model import Request, TrialLanguage
from workers.sandbox.backends.base import Prepared
from workers.sandbox.toolbox import Toolbox

Kind = Literal["work", "tests"]
TIDYVERSE = frozenset("ggplot2 tibble tidyr readr purrr dplyr stringr forcats lubridate".split())
HEAVY: dict[TrialLanguage, frozenset[str]] = {
    "python": frozenset("numpy pandas matplotlib scipy sklearn seaborn statsmodels pytest".split()),
    "r": TIDYVERSE | frozenset("scales data.table testthat broom".split()),
}
"""What takes long to load; anything else is imported by the work itself."""
_NAMED = {
    "python": re.compile(r"^[ \t]*(?:import|from)[ \t]+(\w+)", re.MULTILINE),
    "r": re.compile(
        r"\b(?:library|require|requireNamespace|loadNamespace)\s*\(\s*[\"']?([\w.]+)|\b([\w.]+)::"
    ),
}


def prepared(toolbox: Toolbox, request: Request, kind: Kind) -> Prepared | None:
    """What does the same as starting the driver; None where there is no fork server in this language."""
    if not toolbox.fork_argv:
        return None
    found = packages(request, kind) & (toolbox.packages or frozenset())
    argv = (*toolbox.fork_argv, kind, *sorted(found))
    return Prepared(argv, toolbox.fork_mounts, tuple(sorted(toolbox.environ.items())))


def packages(request: Request, kind: Kind) -> frozenset[str]:
    """The packages of HEAVY that the code names; nothing else is loaded, so that what a program sees of
    packages is what it asked for.
    """
    language = request.work.language
    sources = [request.work.prelude, *(cell.source for cell in request.work.cells)]
    own = frozenset(_named(language, sources))
    if kind == "tests":
        # values of the work's packages come to the tests, too
        tests = frozenset(_named(language, [file.source for file in request.tests]))
        own = {"python": (own & {"numpy", "pandas"}) | tests, "r": tests | {"testthat"}}[language]
    if "tidyverse" in own:
        own |= TIDYVERSE
    found = own & HEAVY[language]
    if kind == "work" and request.work.kind == "notebook":
        found |= {"IPython"} if language == "python" else {"repr"}
    return found


def _named(language: TrialLanguage, sources: Iterable[str]) -> Iterable[str]:
    for source in sources:
        for match in _NAMED[language].finditer(source):
            yield next(name for name in match.groups() if name)
