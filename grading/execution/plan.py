"""Plans what a round's work is run for: requests, and the packages that an assignment knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from types import MappingProxyType
from typing import ClassVar

from grading.config.settings import Limits
from grading.domain.check import CheckBase, all_checks
from grading.domain.document import Cell, Document
from grading.domain.evidence import Show
from grading.domain.messages import Message, define_message
from grading.domain.rubric import Rubric
from grading.execution.path_repair import Repair
from grading.execution.planned_requests import Drafts, Slot
from grading.execution.test_files import file_name, language_of_file
from grading.execution.values import CodeLanguage, Request, TestFile

_PYTHON = re.compile(
    r"(?:^|;)[ \t]*(?:from[ \t]+(?P<from>\w+)[\w. \t]*import\b|import[ \t]+(?P<names>\w[^#\n;]*))"
    r"|import_module\(\s*['\"](?P<late>\w+)",
    re.MULTILINE,
)
_R = re.compile(
    r"\b(?:library|require|requireNamespace|loadNamespace|attachNamespace)\s*\(\s*(?:package\s*=\s*)?"
    r"['\"]?(?P<loaded>[A-Za-z][\w.]*)|\b(?P<namespace>[A-Za-z][\w.]*):::?(?=[A-Za-z.`])"
    r"|\bp_load\s*\((?P<several>[^)]*)\)"
)
_COMMENT = re.compile(r"#.*")
_NAME = re.compile(r"[A-Za-z][\w.]*")
# not the name of an argument, and not what is called
_LISTED = re.compile(r"\b(?!(?:TRUE|FALSE|NULL)\b)[A-Za-z][\w.]*(?![\w.]|\s*[=(])")
READERS = {
    "xlsx": ("openpyxl", "readxl", "openxlsx", "writexl"),
    "xls": ("xlrd", "readxl"),
    "parquet": ("pyarrow", "fastparquet", "arrow"),
    "feather": ("pyarrow", "arrow"),
    "json": ("jsonlite",),
    "dta": ("haven", "pyreadstat"),
    "sav": ("haven", "pyreadstat"),
}
"""Ending of a file of data -> packages that read it."""
PARTS = {
    "tidyverse": ("ggplot2", "tibble", "tidyr", "readr", "purrr", "dplyr", "stringr", "forcats", "lubridate")
}
"""Packages that bring others."""


def known_packages(
    documents: Iterable[Document], tests: Iterable[str], data: Iterable[str], named: Sequence[str]
) -> frozenset[str]:
    """What starter and solution, tests and data ask for, and what `sandbox.packages` names."""
    found = set(named)
    for document in documents:
        for cell in document.cells:
            if cell.kind == "code":
                found.update(imported(cell.source))
    for text in tests:
        found.update(imported(text))
    for path in data:
        stem, _, ending = path.rpartition("/")[2].rpartition(".")
        found.update(READERS.get(ending.lower(), ()), (stem,) if ending.lower() in ("py", "r") else ())
    return frozenset(found.union(*(PARTS.get(name, ()) for name in found)))


def imported(source: str) -> Iterator[str]:
    """Packages that code in Python or R asks for, without their submodules."""
    for hit in _PYTHON.finditer(_COMMENT.sub("", source)):
        for name in (hit["from"], hit["late"], *(hit["names"] or "").split(",")):
            first = _NAME.match((name or "").strip())
            if first:
                yield first[0].partition(".")[0]
    for hit in _R.finditer(source):
        yield from filter(None, (hit["loaded"], hit["namespace"]))
        yield from _LISTED.findall(hit["several"] or "")


MAX_WORKS = 8
"""Documents of one submission that are run."""
FOREIGN = define_message("run.foreign", "%(path)s is in %(language)s, and the assignment asks for %(asked)s")


@dataclass(frozen=True)
class Question:
    """One test as it is planned: what is asked of the work, and what the answer should be."""

    name: str
    code: str
    """What is evaluated, or the name of a variable."""
    mine: Slot
    expected: Slot | None
    """Where the instructor's expected value is; nothing where the solution's answer counts."""
    solved: Slot | None
    """What the solution answers."""
    hidden: bool = False
    show: Show = "input"


@dataclass(frozen=True)
class Asked:
    """What one check asks."""

    works: tuple[str, ...]
    """Paths of the documents that count, the one that is meant first."""
    execution: str
    """The execution of that document."""
    solution: str | None = None
    """The execution of the solution."""
    questions: tuple[Question, ...] = ()
    files: tuple[TestFile, ...] = ()


class RunCheck(CheckBase):
    """A check that looks at what a run of the work showed, and what it asks of the run."""

    needs_run: ClassVar[bool] = True
    """Without a run it does not apply; otherwise it looks at the outputs of the submission then."""
    compares_outputs: ClassVar[bool] = False
    """It looks at the outputs of cells."""
    tests_one: ClassVar[bool] = False
    """It asks of one document only, however many are meant."""
    as_main: ClassVar[bool] = True
    """Documents run as programs, not as modules that tests import."""

    def runs_solution(self) -> bool:
        """Whether the solution is run as well."""
        return False

    def first_file(self) -> str | None:
        """The file of `tests/` that runs before the work."""
        return None

    def ask(self, planner: Planner, asked: Asked, work: Document) -> Asked:
        """Adds what is asked of a document beside its run; `asked` has the runs."""
        return asked


@dataclass(frozen=True)
class Plan:
    """The executions of a submission, by stable keys such as `work:basket.py` and `expected:python`."""

    requests: Mapping[str, Request] = field(default_factory=lambda: MappingProxyType({}))
    repairs: tuple[Repair, ...] = ()
    """Paths of the submission that were replaced."""
    asked: Mapping[str, Asked] = field(default_factory=lambda: MappingProxyType({}))
    """By `key_of` a check."""
    works: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Path of a document -> the execution whose outputs count."""
    solutions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The same for documents of the solution."""
    known: frozenset[str] = frozenset()
    """Packages that the assignment or the server's settings know; see `packages.known_packages`."""
    foreign: Mapping[str, Message] = field(default_factory=lambda: MappingProxyType({}))
    """Path of a document in another language than the assignment's -> a clause about that."""

    def of(self, check: CheckBase) -> Asked | None:
        """What was planned for a check; nothing when there was nothing to run."""
        return self.asked.get(key_of(check))


def key_of(check: CheckBase) -> str:
    """What names a check in a plan: the same questions have the same answers."""
    return check.model_dump_json(
        exclude={"id", "label", "weight", "cap", "where", "part", "own_lines", "given"}
    )


def _something_to_run(checks: Sequence[RunCheck], works: Sequence[Document]) -> bool:
    given = any(check.given for check in checks)  # the starter as it is may be run, too
    return given or (bool(checks) and any(_coded(cell) for work in works for cell in work.cells))


def make_plan(
    documents: Sequence[Document],
    rubric: Rubric,
    solution: Sequence[Document],
    *,
    files: Mapping[str, str],
    tests: Mapping[str, str],
    limits: Limits,
    starter: Sequence[Document] = (),
    solution_files: Mapping[str, str] | None = None,
    language: str = "",
    packages: Sequence[str] = (),
) -> Plan:
    """The executions that the checks of a rubric need; an empty plan when there are none.

    `files` (path -> SHA-256, see `paths.beside`) is what may lie beside the work: the assignment's data below
    `data/`, and other files of the submission, which never lie beside the solution. `tests` holds the texts
    of the assignment's folder `tests/`, `solution_files` what lies beside the solution. `language` is the
    assignment's, `packages` what the server's settings name.
    """
    checks, models = tuple(run_checks(rubric)), (*solution, *starter)
    foreign = foreign_of(documents, spoken_in(language, models))
    works = tuple(d for d in documents if language_of(d) is not None and d.path not in foreign)
    if not works or not _something_to_run(checks, works):
        return Plan(foreign=foreign)
    planner = Planner(works, solution, starter, tests, Drafts(limits, files, solution_files or {}))
    planner.prelude = next((name for c in checks if (name := c.first_file())), None)
    for check in checks:
        planner.ask(check)
    planner.hidden_too = True
    asked = {key_of(check): planner.ask(check) for check in checks}
    return Plan(
        requests=MappingProxyType(planner.drafts.requests()),
        repairs=planner.drafts.repairs(),
        asked=MappingProxyType(asked),
        works=MappingProxyType(planner.drafts.played("work")),
        solutions=MappingProxyType(planner.drafts.played("solution")),
        known=known_packages(models, tests.values(), (p for p in files if p.startswith("data/")), packages),
        foreign=foreign,
    )


def run_checks(rubric: Rubric) -> Iterator[RunCheck]:
    """The checks of a rubric that look at a run of the work, also those inside others."""
    first = [check for criterion in rubric.criteria for check in criterion.checks]
    then = [check for adjustment in rubric.adjustments for check in adjustment.unless]
    return (check for check in all_checks((*first, *then)) if isinstance(check, RunCheck))


def needs_run(rubric: Rubric) -> bool:
    """Whether a check of a rubric does not apply without a run of the work."""
    return any(check.needs_run for check in run_checks(rubric))


def language_of(document: Document) -> CodeLanguage | None:
    """What a document is run as, or nothing when it is not code in Python or R."""
    if document.kind == "prose":
        return None
    spoken = [document.language, *(c.language for c in document.cells if c.kind == "code")]
    known: dict[str, CodeLanguage] = {"python": "python", "r": "r"}
    language = next((known[name] for name in spoken if name in known), None)
    if any(c.kind == "code" and c.language == language and c.source.strip() for c in document.cells):
        return language
    return None


def spoken_in(language: str, models: Sequence[Document]) -> frozenset[str]:
    """The languages that an assignment asks for: its own and those of its solution and starter."""
    return frozenset(filter(None, (language, *(name for d in models for name in _languages(d)))))


def foreign_of(documents: Sequence[Document], spoken: frozenset[str]) -> Mapping[str, Message]:
    """Documents with code in none of these languages, each with a clause; none where no language is known."""
    found = {}
    for document in documents:
        own = language_of(document)
        languages = (own,) if own is not None else _languages(document)
        if spoken and languages and not spoken.intersection(languages):
            asked = " or ".join(map(_called, sorted(spoken)))
            found[document.path] = FOREIGN(path=document.path, language=_called(languages[0]), asked=asked)
    return MappingProxyType(found)


def _called(language: str) -> str:
    names = {"javascript": "JavaScript", "typescript": "TypeScript", "cpp": "C++", "sql": "SQL"}
    return names.get(language, language.capitalize())


def _languages(document: Document) -> tuple[str, ...]:
    if document.kind == "prose":
        return ()
    code = [cell.language for cell in document.cells if cell.kind == "code" and cell.source.strip()]
    return tuple(dict.fromkeys(filter(None, (document.language if code else "", *code))))


def _coded(cell: Cell) -> bool:
    lines = cell.lines
    return cell.kind == "code" and any(lines[n - 1].strip() for n in cell.added if n <= len(lines))


class Planner:
    """Collects what every check asks."""

    def __init__(
        self,
        works: Sequence[Document],
        solution: Sequence[Document],
        starter: Sequence[Document],
        tests: Mapping[str, str],
        drafts: Drafts,
    ) -> None:
        self.works = tuple(works)
        self.solution = tuple(d for d in solution if language_of(d) is not None)
        self.models = (*self.solution, *starter)
        self.tests = tests
        self.drafts = drafts
        self.prelude: str | None = None
        self.hidden_too = False
        """First all that is shown is asked: no later answer may tell what a hidden test was asked with."""

    def ask(self, check: RunCheck) -> Asked:
        """What one check asks; adds it to the runs."""
        chosen = self._chosen(check)
        chosen = chosen[:1] if check.tests_one else chosen
        executions = [self._execution("work", d, check) for d in chosen]
        solution = None
        for document in chosen if check.runs_solution() else ():
            solved = self._solved(document, check)
            if solved is not None:
                key = self._execution("solution", solved, check)
                solution = solution or key
        asked = Asked(tuple(d.path for d in chosen), executions[0], solution)
        return check.ask(self, asked, chosen[0])

    def _chosen(self, check: CheckBase) -> tuple[Document, ...]:
        """The documents a check is about: by its glob, by the names of solution and starter, or all."""
        if check.files is not None:
            fitting = tuple(d for d in self.works if fits(d.path, check.files))
        else:
            named = {file_name(d.path).lower() for d in self.models}
            fitting = tuple(d for d in self.works if file_name(d.path).lower() in named)
            stems = {_stem(name) for name in named}
            fitting = fitting or tuple(d for d in self.works if _stem(d.path) in stems)
        fitting = fitting or self.works
        # where nothing was added, there is nothing of the student's to run
        return (tuple(d for d in fitting if any(_coded(c) for c in d.cells)) or fitting)[:MAX_WORKS]

    def _solved(self, work: Document, check: CheckBase) -> Document | None:
        language = language_of(work)
        able = [d for d in self.solution if language_of(d) == language]
        if check.files is not None:
            able = [d for d in able if fits(d.path, check.files)] or able
        return next((d for d in able if _stem(d.path) == _stem(work.path)), able[0] if able else None)

    def _execution(self, role: str, document: Document, check: RunCheck) -> str:
        language = language_of(document)
        assert language is not None  # only such documents are chosen
        module = self._module(document)
        key = self.drafts.work(role, document, language, module, *self.prelude_of(check, language))
        if check.as_main:
            self.drafts.as_main(key)
        return key

    def _module(self, document: Document) -> str:
        """What tests import a document by: its own name if solution or starter has it, else theirs."""
        like = [d.path for d in self.models if language_of(d) == language_of(document)]
        own = next((path for path in like if _stem(path) == _stem(document.path)), None)
        return file_name(own or (like[0] if like else document.path)).rpartition(".")[0]

    def prelude_of(self, check: RunCheck, language: CodeLanguage) -> tuple[str, str]:
        """What names a prelude in keys (nothing for the rubric's own), and its text."""
        name = check.first_file() or self.prelude
        if name is None or language_of_file(name) != language:
            return "", ""
        text = self.tests.get(name, self.tests.get(f"tests/{name}", ""))
        return ("" if name == self.prelude else name), text


def fits(path: str, glob: str) -> bool:
    """Whether a path, or its last part, fits a glob, in any case."""
    path, glob = path.lower(), glob.lower()
    return fnmatch(path, glob) or fnmatch(file_name(path), glob)


def _stem(path: str) -> str:
    return file_name(path).rpartition(".")[0].lower() or file_name(path).lower()
