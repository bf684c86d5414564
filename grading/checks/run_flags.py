"""Flags about running the work: not run, stopped, packages missing, tests that are wrong themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grading.checks.context import Finding, counted, listed
from grading.checks.kinds.outputs import OutputClose
from grading.checks.kinds.runs import OutputEquals, RunsClean
from grading.checks.kinds.tests import PassesTests, VariableEquals, judged
from grading.checks.outputs import unconfirmed
from grading.checks.scope import Scopes
from grading.domain.model import Flag, Location
from grading.domain.rubric import Rubric
from grading.execution.plan import RunCheck, needs_run, run_checks
from grading.execution.results import Ran

BROKEN = "tests_broken"
"""The flag that names tests for the instructor; students do not see it."""
MAX_REPAIRS = 10


def run_flags(rubric: Rubric, mine: Scopes, findings: Sequence[Finding], ran: Ran | None) -> tuple[Flag, ...]:
    """What a person should know about the trials of a hand-in."""
    if not mine.find().code:
        return ()
    surplus = tuple(_surplus(findings))
    problem = "There is no sandbox on this server." if ran is None else ran.problem
    if ran is None or problem:
        if not needs_run(rubric):
            return surplus
        message = f"The work was not run, and its behaviour is not graded. {problem}"
        return (Flag(code="not_run", message=message, hold=_only_by_running(rubric)), *surplus)
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
            message = f"An output may list many answers instead of one, and does not count: {found.surplus}."
            yield Flag(code="output_surplus", message=message, hold=True, location=found.location)


def _only_by_running(rubric: Rubric) -> bool:
    """Whether a criterion has no other checks than those that need a run; a person must judge it then."""
    return any(
        c.checks and all(isinstance(check, RunCheck) and check.needs_run for check in c.checks)
        for c in rubric.criteria
    )


def _stopped(ran: Ran) -> Iterator[Flag]:
    for path, trial in ran.stopped:
        reason = trial.reason.rstrip(".") or f"the trial ended: {trial.end}"
        message = (
            f"{path} was stopped when it was run: {reason}. What was not reached does not count as passed."
        )
        yield Flag(code="run_stopped", message=message, hold=True, location=Location(document=path))
    for path in ran.plan.works:
        long = [n for n, cell in (ran.played(path) or {}).items() if cell.state == "too long"]
        if long:
            message = (
                f"{counted(len(long), 'cell')} of {path} took too long when it was run, and was stopped."
            )
            where = Location(document=path, cell=long[0])
            yield Flag(code="run_stopped", message=message, hold=True, location=where)


def _missing(rubric: Rubric, mine: Scopes, findings: Sequence[Finding], ran: Ran) -> Iterator[Flag]:
    if not ran.missing:
        return
    failed = any(not test.passed for found in findings for test in found.tests)
    cells = [p for p in mine.find().code if p.cell.number in ran.excused(p.document.path)]
    tested = (ran.plan.of(check) for check in run_checks(rubric) if check.tests_one)
    failed = failed or any(ran.lacking(asked.trial) for asked in tested if asked is not None)
    lost = any(check.compares_outputs for check in run_checks(rubric)) and any(
        not p.cell.outputs for p in cells
    )
    names = listed(name[:60] for name in ran.missing)
    message = f"Packages that the work asks for are not installed where it is run: {names}."
    if cells:
        message += f" {counted(len(cells), 'cell is', 'cells are')} not counted for that."
    where = cells[0].at() if cells else None
    yield Flag(code="missing_packages", message=message, hold=failed or lost, location=where)


def _unknown(ran: Ran) -> Iterator[Flag]:
    """Imports of packages that nothing of the assignment asks for: an error of the work, as any other."""
    if ran.unknown:
        names = listed(name[:60] for name in ran.unknown)
        message = (
            "The work asks for packages that are not installed here, and that the assignment does not use: "
            f"{names}. What fails for want of them counts as an error of the work."
        )
        yield Flag(code="unknown_packages", message=message)


def _broken(rubric: Rubric, findings: Sequence[Finding], ran: Ran) -> Iterator[Flag]:
    wrong: list[str] = []
    for check in run_checks(rubric):
        asked = ran.plan.of(check)
        if asked is not None and isinstance(check, PassesTests | VariableEquals):
            wrong += [j.broken for j in judged(check, asked, ran) if j.broken]
    wrong += [found.broken for found in findings if found.broken]
    wrong = list(dict.fromkeys([*wrong, *_failing_solution(rubric, ran)]))
    if wrong:
        more = f" There are {len(wrong) - 3} more." if len(wrong) > 3 else ""
        message = (
            f"Tests that are wrong themselves do not count. {' '.join(f'{w}.' for w in wrong[:3])}{more}"
        )
        yield Flag(code=BROKEN, message=message[:2000], hold=True)


def _failing_solution(rubric: Rubric, ran: Ran) -> Iterator[str]:
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
            why = f" ({failing.error[:200]})" if failing.error else ""
            yield f"cell {failing.number} of {path}: the solution itself does not run{why}"


def _unconfirmed(rubric: Rubric, mine: Scopes, ran: Ran) -> Iterator[Flag]:
    """Outputs that count as they were handed in, because the cell could not be run here."""
    if not any(c.compares_outputs or isinstance(c, RunsClean) for c in run_checks(rubric)):
        return
    cells = [piece for piece in mine.find().code if unconfirmed(piece, ran)]
    if cells:
        message = (
            f"{counted(len(cells), 'cell counts', 'cells count')} as handed in: "
            "for want of a file, a package or the network the work did not run that far here."
        )
        # a line that opens a file nobody has is enough to get here, so a person should look
        yield Flag(code="outputs_as_handed_in", message=message, hold=True, location=cells[0].at())


def _repairs(ran: Ran) -> Iterator[Flag]:
    for found in ran.plan.repairs[:MAX_REPAIRS]:
        yield Flag(code="path_repaired", message=found.message, location=found.location)
