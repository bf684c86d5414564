"""Flags about running the work: not run, stopped, packages missing, tests that are wrong themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grading.checks.context import Finding
from grading.checks.kinds.outputs import OutputClose
from grading.checks.kinds.runs import OutputEquals, RunsClean
from grading.checks.kinds.tests import PassesTests, VariableEquals, judged
from grading.checks.message_parts import CELLS, listed
from grading.checks.outputs import unconfirmed
from grading.checks.scope import Scopes
from grading.domain.document import Location
from grading.domain.evidence import Flag
from grading.domain.messages import Message, define_message, define_plural
from grading.domain.rubric import Rubric
from grading.execution.plan import RunCheck, needs_run, run_checks
from grading.execution.results import NO_SANDBOX, Ran

NOT_RUN = define_message(
    "flag.not_run", "The submission was not run, so checks that need a run were skipped. %(problem)s"
)
SURPLUS = define_message(
    "flag.output_surplus",
    "An output seems to list several answers instead of one, so it earns no points: %(surplus)s.",
)
STOPPED = define_message(
    "flag.run_stopped",
    "The run of %(path)s was stopped: %(reason)s. Cells and tests that did not run count as failed.",
)
ENDED = define_message("run.ended", "the run ended: %(end)s")
TOOK_TOO_LONG = define_message(
    "flag.took_too_long", "The run of %(path)s exceeded the time limit in %(cells)s."
)
MISSING = define_message(
    "flag.missing_packages",
    "The submission imports packages that are not installed in the sandbox: %(packages)s.",
)
NOT_COUNTED = define_plural(
    "flag.cells_not_counted",
    "%(missing)s For this reason, %(count)s cell is not graded.",
    "%(missing)s For this reason, %(count)s cells are not graded.",
)
UNKNOWN = define_message(
    "flag.unknown_packages",
    "The submission imports packages that are not installed and not part of the assignment: "
    "%(packages)s. Failures caused by them count as errors.",
)
WRONG_TESTS = define_message("flag.tests_broken", "Some tests are broken and do not count.")
WRONG_TEST = define_message("flag.test_broken", "%(before)s %(test)s.")
MORE_WRONG = define_message("flag.more_broken", "%(before)s There are %(count)s more.")
SOLUTION_STOPS = define_message(
    "flag.solution_stops", "cell %(cell)s of %(path)s: the solution does not run (%(error)s)"
)
SOLUTION_FAILS = define_message("flag.solution_fails", "cell %(cell)s of %(path)s: the solution does not run")
AS_SUBMITTED = define_plural(
    "flag.as_submitted",
    "The submitted output of %(count)s cell counts: a missing file, package or network connection "
    "stopped the run before it.",
    "The submitted outputs of %(count)s cells count: a missing file, package or network connection "
    "stopped the run before them.",
)
BROKEN = "tests_broken"
"""The flag that names tests for the instructor; students do not see it."""
MAX_REPAIRS = 10


def run_flags(rubric: Rubric, mine: Scopes, findings: Sequence[Finding], ran: Ran | None) -> tuple[Flag, ...]:
    """What a person should know about the executions of a submission."""
    if not mine.find().code:
        return ()
    surplus = tuple(_surplus(findings))
    problem = NO_SANDBOX() if ran is None else ran.problem
    if ran is None or problem:
        if not needs_run(rubric):
            return surplus
        flag = Flag.of("not_run", NOT_RUN(problem=problem), hold=_only_by_running(rubric))
        return (flag, *surplus)
    return (
        *_stopped(ran),
        *_missing(rubric, mine, findings, ran),
        *_unknown(ran),
        *_broken(rubric, findings, ran),
        *surplus,
        *_unconfirmed(rubric, mine, ran),
        *_repairs(ran),
    )


def _surplus(findings: Sequence[Finding]) -> Iterator[Flag]:
    """Outputs in which there is too much beside the answer, and which earn nothing for that."""
    for found in findings:
        if found.surplus:
            message = SURPLUS(surplus=found.surplus)
            yield Flag.of("output_surplus", message, hold=True, location=found.location)


def _only_by_running(rubric: Rubric) -> bool:
    """Whether a criterion has no other checks than those that need a run; a person must judge it then."""
    return any(
        c.checks and all(isinstance(check, RunCheck) and check.needs_run for check in c.checks)
        for c in rubric.criteria
    )


def _stopped(ran: Ran) -> Iterator[Flag]:
    for path, execution in ran.stopped:
        reason = execution.clause if execution.reason else ENDED(end=execution.end)
        message = STOPPED(path=path, reason=reason)
        yield Flag.of("run_stopped", message, hold=True, location=Location(document=path))
    for path in ran.plan.works:
        long = [n for n, cell in (ran.played(path) or {}).items() if cell.state == "too long"]
        if long:
            message = TOOK_TOO_LONG(cells=CELLS(count=len(long)), path=path)
            where = Location(document=path, cell=long[0])
            yield Flag.of("run_stopped", message, hold=True, location=where)


def _missing(rubric: Rubric, mine: Scopes, findings: Sequence[Finding], ran: Ran) -> Iterator[Flag]:
    if not ran.missing:
        return
    failed = any(not test.passed for found in findings for test in found.tests)
    cells = [p for p in mine.find().code if p.cell.number in ran.excused(p.document.path)]
    tested = (ran.plan.of(check) for check in run_checks(rubric) if check.tests_one)
    failed = failed or any(ran.lacking(asked.execution) for asked in tested if asked is not None)
    lost = any(check.compares_outputs for check in run_checks(rubric)) and any(
        not p.cell.outputs for p in cells
    )
    names = listed(name[:60] for name in ran.missing)
    message = MISSING(packages=names)
    if cells:
        message = NOT_COUNTED(missing=message, count=len(cells))
    where = cells[0].at() if cells else None
    yield Flag.of("missing_packages", message, hold=failed or lost, location=where)


def _unknown(ran: Ran) -> Iterator[Flag]:
    """Imports of packages that nothing of the assignment asks for: an error of the work, as any other."""
    if ran.unknown:
        names = listed(name[:60] for name in ran.unknown)
        yield Flag.of("unknown_packages", UNKNOWN(packages=names))


def _broken(rubric: Rubric, findings: Sequence[Finding], ran: Ran) -> Iterator[Flag]:
    wrong: list[Message] = []
    for check in run_checks(rubric):
        asked = ran.plan.of(check)
        if asked is not None and isinstance(check, PassesTests | VariableEquals):
            wrong += [j.broken for j in judged(check, asked, ran) if j.broken]
    wrong += [found.broken for found in findings if found.broken]
    wrong = list({one.message: one for one in (*wrong, *_failing_solution(rubric, ran))}.values())
    if wrong:
        message = WRONG_TEST(before=WRONG_TESTS(), test=wrong[0])
        for one in wrong[1:3]:
            message = WRONG_TEST(before=message, test=one)
        if len(wrong) > 3:
            message = MORE_WRONG(before=message, count=len(wrong) - 3)
        yield Flag.of(BROKEN, message, hold=True)


def _failing_solution(rubric: Rubric, ran: Ran) -> Iterator[Message]:
    """Cells of the solution that fail here though their outputs are what is expected."""
    compared = (
        not c.text if isinstance(c, OutputEquals) else isinstance(c, OutputClose) and not c.values
        for c in run_checks(rubric)
    )
    if not any(compared):
        return
    for path in ran.plan.solutions:
        cells = ran.played(path, solution=True) or {}
        failing = next((cell for cell in cells.values() if cell.state != "ran"), None)
        if failing is not None:
            at = {"cell": failing.number, "path": path}
            error = failing.error[:200]
            yield SOLUTION_STOPS(**at, error=error) if error else SOLUTION_FAILS(**at)


def _unconfirmed(rubric: Rubric, mine: Scopes, ran: Ran) -> Iterator[Flag]:
    """Outputs that count as they were submitted, because the cell could not be run here."""
    if not any(c.compares_outputs or isinstance(c, RunsClean) for c in run_checks(rubric)):
        return
    cells = [piece for piece in mine.find().code if unconfirmed(piece, ran)]
    if cells:
        message = AS_SUBMITTED(count=len(cells))
        # a line that opens a file nobody has is enough to get here, so a person should look
        yield Flag.of("outputs_as_submitted", message, hold=True, location=cells[0].at())


def _repairs(ran: Ran) -> Iterator[Flag]:
    for found in ran.plan.repairs[:MAX_REPAIRS]:
        yield Flag.of("path_repaired", found.message, location=found.location)
