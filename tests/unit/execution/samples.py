"""Executions made in this process, of code that the tests themselves hold: what a sandbox would say."""

from __future__ import annotations

import contextlib
import io
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grading.checks import collect
from grading.config.settings import Limits
from grading.domain.check import Check
from grading.domain.document import Document, Output
from grading.domain.evidence import CheckOutcome, Evidence
from grading.domain.rubric import Criterion, Rubric
from grading.execution.plan import Plan, make_plan
from grading.execution.results import Ran
from grading.execution.values import Answer, Execution, Played, Request, Shape, Tested

ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    TypeError,
)
Play = Callable[[str, Request], Execution]


def shape(value: Any) -> Shape:
    """A value of Python as a sandbox would send it."""
    kind = type(value).__name__
    if value is None:
        return Shape(kind="nothing", type=kind)
    if isinstance(value, bool):
        return Shape(kind="truth", type=kind, text=str(value).lower())
    if isinstance(value, int | float | complex):
        return Shape(kind="number", type=kind, text=str(value).strip("()"))
    if isinstance(value, str):
        return Shape(kind="text", type=kind, text=value)
    if isinstance(value, dict):
        keys, items = tuple(map(shape, value)), tuple(map(shape, value.values()))
        return Shape(kind="map", type=kind, keys=keys, items=items)
    if isinstance(value, list | tuple):
        return Shape(kind="list", type=kind, items=tuple(map(shape, value)))
    if isinstance(value, set | frozenset):
        return Shape(kind="set", type=kind, items=tuple(map(shape, value)))
    return Shape(kind="other", type=kind, text=repr(value))


def table(**columns: Sequence[Any]) -> Shape:
    return Shape(
        kind="table",
        type="DataFrame",
        names=tuple(columns),
        columns=tuple(tuple(column) for column in columns.values()),
    )


def play(key: str, request: Request) -> Execution:
    """Runs Python code of a test in this process."""
    space: dict[str, Any] = {}
    exec(request.work.prelude, space)
    cells = []
    for code in request.work.cells:
        printed = io.StringIO()
        state, error, line = "ran", "", None
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(code.source, "cell", "exec"), space)
            except ERRORS as problem:
                state, error = "failed", f"{type(problem).__name__}: {problem}"
                line = problem.__traceback__.tb_next.tb_lineno if problem.__traceback__.tb_next else None
        outputs = (Output(kind="stream", text=printed.getvalue()),) if printed.getvalue() else ()
        cells.append(Played(number=code.number, state=state, error=error, line=line, outputs=outputs))
    answers = tuple(_answer(e.code, space) for e in request.expressions)
    variables = {
        name: Answer(state="value", value=shape(space[name])) if name in space else Answer(state="missing")
        for name in request.variables
    }
    tests = [t for file in request.tests for t in _tests(file.path, file.source, request, space)]
    return Execution(
        end="finished", cells=tuple(cells), answers=answers, variables=variables, tests=tuple(tests)
    )


def _answer(code: str, space: dict[str, Any]) -> Answer:
    try:
        return Answer(state="value", value=shape(eval(code, dict(space))))
    except ERRORS as problem:
        return Answer(state="error", error=f"{type(problem).__name__}: {problem}")


def _tests(path: str, source: str, request: Request, space: dict[str, Any]) -> list[Tested]:
    own: dict[str, Any] = {request.work.module: types.SimpleNamespace(**space)}
    exec(source, own)
    found = []
    for name in [n for n in own if n.startswith("test")]:
        try:
            own[name]()
            found.append(Tested(file=path, name=name, state="passed"))
        except ERRORS as problem:
            found.append(Tested(file=path, name=name, state="failed", message=repr(problem)))
    return found


def rubric_of(*checks: Check, where: str | None = None) -> Rubric:
    return Rubric(criteria=(Criterion(id="it", title="It", points=1, checks=checks, where=where),))


def planned(
    check: Check | Rubric,
    *documents: Document,
    solution: Sequence[Document] = (),
    starter: Sequence[Document] = (),
    files: Mapping[str, str] | None = None,
    tests: Mapping[str, str] | None = None,
) -> Plan:
    rubric = check if isinstance(check, Rubric) else rubric_of(check)
    return make_plan(
        documents,
        rubric,
        solution,
        files=files or {},
        tests=tests or {},
        limits=Limits(),
        starter=starter,
    )


def collected(
    check: Check | Rubric,
    *documents: Document,
    solution: Sequence[Document] = (),
    tests: Mapping[str, str] | None = None,
    runs: Play = play,
) -> Evidence:
    """The evidence with every execution that the checks need."""
    rubric = check if isinstance(check, Rubric) else rubric_of(check)
    plan = planned(rubric, *documents, solution=solution, tests=tests)
    executions = {key: runs(key, request) for key, request in plan.requests.items()}
    return collect(documents, rubric, solution, Ran(plan, executions))


def run_outcome(check: Check, *documents: Document, **how: Any) -> CheckOutcome:
    return collected(check, *documents, **how).criteria[0].outcomes[0]
