"""Results of tests and executions in words, bounded for pages; what a reader may see is decided before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import ngettext, render_message
from grading.checks.context import headline
from grading.domain.document import Cell
from grading.domain.evidence import CheckOutcome, Flag, TestOutcome
from grading.domain.report import Report
from grading.execution.display import ShownDocument
from grading.execution.values import Played

SHOWN_FAILED = 50
SHOWN_PASSED = 200
"""Tests of one check that a page lists."""
LONGEST = 2000
"""Characters of one input or value that a page shows."""
FOLDED_CHARS, FOLDED_LINES = 240, 5
"""What is longer is folded."""
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
RUN_NOTES = {
    "not_run": (
        N_("The work was not run"),
        N_(
            "Your work could not be run on the server. This does not count against you. Checks that "
            "need a run were skipped."
        ),
        N_("The work could not be run on the server. Checks that need a run were skipped."),
    ),
    "run_stopped": (
        N_("The run was stopped"),
        N_("Your work was stopped early because it reached a limit or ended itself."),
        N_("The run was stopped early."),
    ),
    "missing_packages": (
        N_("Packages are missing on the server"),
        N_("Your work uses packages that the server does not have. This does not count against you."),
        N_(
            "The work uses packages that the sandbox does not have. If many students need them, add "
            "them to the sandbox."
        ),
    ),
    "unknown_packages": (
        N_("Packages not used by the assignment"),
        N_(
            "Your work uses packages that are not available and not part of the assignment. Failures "
            "caused by them count as errors."
        ),
        N_(
            "The work uses packages that are not installed and not part of the assignment. This "
            "counts as an error of the work. To allow them, add them to sandbox.packages in "
            "config.toml, install them, then regrade."
        ),
    ),
    "outputs_as_submitted": (
        N_("Some code could not be run"),
        N_("Some of your code could not be run on the server. Your submitted outputs count instead."),
        N_("Some code could not be run here. Its submitted outputs count instead."),
    ),
    "path_repaired": (
        N_("Paths were replaced"),
        N_(
            "Your code uses file paths that exist only on your computer. They were replaced for the "
            "run. See the lines below."
        ),
        N_("File paths were replaced for the run. See the lines below."),
    ),
    "tests_broken": (
        N_("Some tests are broken"),
        N_(
            "Some tests of this assignment are broken. They do not count against you. Your "
            "instructor was notified."
        ),
        N_("Some of the assignment's tests are broken. Fix them, then regrade."),
    ),
}
"""Code of a flag -> title, words for the student, words for staff."""
_OWN = ("run_stopped", "missing_packages", "unknown_packages", "outputs_as_submitted")
"""Notes whose details are about the student's own work only."""
_AT_LINES = "path_repaired"
"""Its details stand beside the lines."""


@dataclass(frozen=True)
class RunNote:
    """A note on how running the work went."""

    title: str
    words: str
    detail: str
    hold: bool


@dataclass(frozen=True)
class Part:
    """One thing that is known of a test; `folded` when it is long."""

    label: str
    text: str
    folded: bool

    @property
    def start(self) -> str:
        """The beginning, for the line that unfolds it."""
        first = self.text.strip().partition("\n")[0]
        return f"{first[:60]}…"


@dataclass(frozen=True)
class TestRow:
    """One test of a list."""

    __test__ = False  # not a test of pytest's

    title: str
    passed: bool
    hidden: bool
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Tests:
    """The tests of a check: those this reader may look at, the failing ones first."""

    sentence: str
    """How many passed, where the check's message does not say it."""
    failed: tuple[TestRow, ...]
    passed: tuple[TestRow, ...]
    more_failed: int = 0
    more_passed: int = 0


@dataclass(frozen=True)
class RanCell:
    """What became of a cell when it was run here, where that says more than what was submitted."""

    words: str
    outputs: tuple[str, ...] = ()
    images: int = 0


def listed_tests(outcome: CheckOutcome, staff: bool) -> Tests | None:
    """The tests of a check as one reader's list; hidden ones are listed for staff only."""
    if not outcome.tests:
        return None
    listed = [test for test in outcome.tests if staff or not test.hidden]
    failed = [test for test in listed if not test.passed]
    passed = [test for test in listed if test.passed]
    return Tests(
        sentence="" if outcome_text(outcome) else counted(outcome.tests),
        failed=tuple(_row(test) for test in failed[:SHOWN_FAILED]),
        passed=tuple(_row(test) for test in passed[:SHOWN_PASSED]),
        more_failed=max(0, len(failed) - SHOWN_FAILED),
        more_passed=max(0, len(passed) - SHOWN_PASSED),
    )


def outcome_text(outcome: CheckOutcome) -> str:
    """The message of a check. The list of its tests gives the example, and counts hidden ones."""
    if not outcome.tests:
        return render_message(outcome.coded)
    hidden = any(test.hidden for test in outcome.tests)
    return "" if hidden else render_message(headline(outcome.coded))


def counted(tests: Iterable[TestOutcome]) -> str:
    """`9 of 11 tests passed, 3 of 4 hidden tests passed`."""
    both = [(hidden, [t for t in tests if t.hidden is hidden]) for hidden in (False, True)]
    return ", ".join(
        _counted(hidden, sum(t.passed for t in those), len(those)) for hidden, those in both if those
    )


def _counted(hidden: bool, passed: int, total: int) -> str:
    if hidden:
        return ngettext(
            "%(passed)s of %(count)s hidden test passed",
            "%(passed)s of %(count)s hidden tests passed",
            total,
            passed=passed,
        )
    return ngettext(
        "%(passed)s of %(count)s test passed", "%(passed)s of %(count)s tests passed", total, passed=passed
    )


def _row(test: TestOutcome) -> TestRow:
    both = f"gave {test.got}, not {test.expected}"  # the two parts before the reason say that already
    measured = (
        (_("Input"), test.input),
        (_("Expected"), test.expected),
        (_("Actual"), test.got),
        (_("Reason"), "" if test.message == both else render_message(test.coded)),
    )
    title = " ".join(test.name.split())[:200] or _("A test")
    parts = tuple(_part(label, text) for label, text in measured if text.strip() not in ("", title))
    return TestRow(title, test.passed, test.hidden, parts)


def _part(label: str, text: str) -> Part:
    folded = len(text) > FOLDED_CHARS or text.count("\n") >= FOLDED_LINES
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}\n" + _("… (the rest is not shown)")
    return Part(label, cut, folded)


def run_notes(report: Report, staff: bool) -> tuple[RunNote, ...]:
    """Notes on the run in plain words, one a kind; for students without details of what is the school's."""
    flags = [(code, [f for f in report.flags if f.code == code]) for code in RUN_NOTES]
    return tuple(_note(code, found, staff) for code, found in flags if found)


def _note(code: str, flags: Sequence[Flag], staff: bool) -> RunNote:
    title, student, other = RUN_NOTES[code]
    listed = code in _OWN or (staff and code != _AT_LINES)
    detail = " ".join(dict.fromkeys(render_message(flag.coded) for flag in flags)) if listed else ""
    return RunNote(_(title), _(other if staff else student), detail, any(flag.hold for flag in flags))


def ran_document(found: ShownDocument | None, staff: bool) -> tuple[str, ...]:
    """How running a document went, in sentences; nothing where it was not tried."""
    return () if found is None else tuple(_sentences(found, staff))


def _sentences(found: ShownDocument, staff: bool) -> Iterator[str]:
    if found.end == "not run":
        yield f"{_('This was not run.')} {found.reason if staff else ''}".strip()
        return
    ran = sum(played.state == "ran" for played in found.cells)
    if len(found.cells) > 1:
        yield _(
            "When we ran your work, %(ran)s of %(all)s code cells ran without errors.",
            ran=ran,
            all=len(found.cells),
        )
    elif ran:
        yield _("When we ran your work, it finished without errors.")
    elif found.end == "finished":
        yield _("When we ran your work, it did not finish.")
    if found.end != "finished":
        yield render_message(found.coded) or _("The run was stopped early.")
    if found.missing:
        yield _(
            "Not installed on the server: %(names)s. This does not count against the work.",
            names=", ".join(found.missing),
        )
    if found.unknown:
        yield _(
            "Not available and not used by the assignment: %(names)s. Failures caused by these "
            "packages count as errors of the work.",
            names=", ".join(found.unknown),
        )


def ran_cell(cell: Cell, played: Played | None, noted: bool, excused: bool = False) -> RanCell | None:
    """What to show of a cell's run: all that differs from what was submitted.

    `noted` says that its error stands at its line already, `excused` that something is missing here.
    """
    if played is None:
        return None
    texts = tuple(o.text for o in played.outputs if o.kind != "error" and o.text.strip())
    images = sum(output.image for output in played.outputs)
    submitted = [output for output in cell.outputs if output.kind != "error"]
    same = _plain(texts) == _plain(output.text for output in submitted)
    same = same and bool(images) == any(output.image for output in submitted)
    if played.state == "not reached":
        return RanCell(_("Not reached when we ran your work."))
    if played.state == "too long":
        return RanCell(_("When we ran your work, it reached the time limit and was stopped."), texts, images)
    if played.state == "failed":
        why = f": {played.error}" if played.error and not noted else "."
        words = _("When we ran your work, it stopped with an error") + why
        if excused:
            missing = _("A package, a file or the network may be missing here, which does not count.")
            words = f"{words} {missing}"
        return RanCell(words, () if same else texts, images)
    if same and (cell.outputs or cell.execution_count is not None):
        failed_before = any(output.kind == "error" for output in cell.outputs)
        return RanCell(_("When we ran your work, it ran without errors.")) if failed_before else None
    if not texts and not images:
        return RanCell(_("When we ran your work, it produced no output."))
    return RanCell(_("When we ran your work:"), texts, images)


def _plain(texts: Iterable[str]) -> str:
    """Outputs for comparing: without blanks, and without addresses in memory, which differ each time."""
    return "".join(_ADDRESS.sub("0x", "".join(texts)).split())
