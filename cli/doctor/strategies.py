"""`grader doctor --strategies`: machines measure from where on strategies pay, with a recommendation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import click

from cli.examinations import Answer, ask_machines
from cli.output import counted
from cli.tables import show, table
from grading.broker.celery_app import COMPARE
from grading.broker.dispatch import Dispatch, open_dispatch
from grading.broker.machine_status import MachineState
from grading.config.settings import Config
from grading.domain.errors import GraderError
from grading.scheduling.crossings import Advice, Compared, PaysBy, Speed, UsualPrompts, advise
from grading.store.database import Store
from grading.store.reporting.operations import usual_prompts

SECONDS = 300.0
"""For each machine."""
TRAVEL_S = 10.0
"""Until a task is taken up, and its answer read."""
ENDED = {
    "time": "the time was over before everything was measured",
    "work": "broken off, because students' work or a gateway request came",
    "busy": "not measured, because the machine has work; run it again when nobody submits",
}


@dataclass(frozen=True)
class Result:
    """A strategy of a machine: what was measured, and what follows from it."""

    machine: str
    engine: str
    model: str
    strategy: str
    stages: tuple[str, ...]
    rows: tuple[Compared, ...]
    accepted: float | None
    """Share of the proposed tokens that were accepted, alone in the batch."""
    usual: UsualPrompts
    advice: Advice | None
    sentence: str
    times: int
    """How often everything was measured."""


def compare_strategies(
    config: Config, names: Sequence[str], draft: str, as_json: bool, seconds: float = SECONDS
) -> None:
    """Ask one machine after the other, as they may read for each other; print what follows.

    Raises GraderError where no machine runs or one does not answer.
    """
    dispatch, store = open_dispatch(config), Store(config.database.url)
    results, notes, silent = list[Result](), list[str](), list[str]()
    try:
        states = [one for one in dispatch.machines() if one.alive and (not names or one.name in names)]
        if not states:
            raise GraderError("No machine is running. Start the workers first; `grader doctor` says which.")
        for state in states:
            if not as_json:
                click.echo(f"Machine {state.name} measures its strategies, for at most {seconds:.0f} s.")
            answer = _ask(dispatch, state, draft, seconds)
            if answer is None:
                silent.append(state.name)
                continue
            if (ended := str(answer["ended"])) in ENDED:
                notes.append(f"{state.name}: {ENDED[ended]}.")
            results += _results(store, state.name, answer)
    finally:
        store.close()
        dispatch.registry.redis.close()
        dispatch.celery.close()
    (_print_json if as_json else _print)(results, notes, silent)
    if silent:
        raise GraderError(f"{counted(len(silent), 'machine')} did not answer.")


def _ask(dispatch: Dispatch, state: MachineState, draft: str, seconds: float) -> Answer | None:
    """What a machine measured; None where it did not answer."""
    options = {"seconds": seconds, "draft": draft}
    wait = seconds + TRAVEL_S
    answers = ask_machines(
        dispatch, COMPARE, [state.name], [options], wait, worth_waiting=lambda one: one.alive
    )
    answer = answers.get(state.name)
    return answer if answer and "strategies" in answer else None


def _results(store: Store, machine: str, answer: Answer) -> Iterator[Result]:
    for found in answer["strategies"]:
        with store.read() as session:
            usual = usual_prompts(session, found["stages"])
        yield result_of(machine, found, usual)


def result_of(machine: str, found: Mapping[str, Any], usual: UsualPrompts) -> Result:
    """What a machine told of one strategy, with what follows for these prompts."""
    rows = tuple(
        Compared(row["known"], row["new"], row["batch"], Speed(**row["direct"]), Speed(**row["strategy"]))
        for row in found["rows"]
    )
    pays_by = cast(PaysBy, found["pays_by"])
    advice = advise(pays_by, rows, usual, found["computers"]) if rows else None
    times = min((row["times"] for row in found["rows"]), default=0)
    accepted = next((row["accepted"] for row in found["rows"] if row["batch"] == 1), None)
    if advice is None:
        said = f"not measured: {found['fault'] or 'there was not enough time.'}"
    elif pays_by == "batch":
        said = _of_batch(advice, rows, accepted)
    else:
        said = _of_prompts(advice, usual, found["computers"])
    if times == 1:
        said += " Everything was measured only once."
    return Result(
        machine,
        found["engine"],
        found["model"],
        found["strategy"] or found["engine"],
        tuple(found["stages"]),
        rows,
        accepted,
        usual,
        advice,
        said,
        times,
    )


def _word(advice: Advice) -> str:
    return {True: "on", False: "off", None: "on for such prompts"}[advice.on]


def _of_prompts(advice: Advice, usual: UsualPrompts, computers: int) -> str:
    """From which length on, the length of a class's prompts, and what follows."""
    pays = f"does not pay up to {advice.longest:,} new tokens, the longest that were measured"
    if advice.tokens is not None:
        pays = f"pays from {advice.tokens:,} new tokens"
    have = "no runs of students' work are known"
    if usual.runs:
        have = f"prompts of students' work have {usual.new:,.0f} new tokens (median of {usual.runs} runs)"
    if advice.gain is not None and usual.new >= (advice.tokens or usual.new + 1):
        have += f", whose answers of {usual.output:,.0f} tokens are ready {advice.gain:.0%} earlier"
    full = ""
    if advice.full is not None:
        full = f" A full batch writes {advice.full:.2f} times the tokens of one computer"
        full += f", {computers} computers with a copy each {computers} times." if computers > 1 else "."
    return f"{pays}; {have}.{full} Recommended: {_word(advice)}."


def _of_batch(advice: Advice, rows: Sequence[Compared], accepted: float | None) -> str:
    """Tokens a second alone, both ways, and from how many answers on a batch is as fast."""
    one = next(row for row in rows if row.batch == 1)
    with_draft, without = one.strategy.tokens_s or 0.0, one.direct.tokens_s or 0.0
    share = "" if accepted is None else f", {accepted:.0%} of the proposals accepted"
    said = f"an answer alone gets {with_draft:,.1f} tokens/s with it and {without:,.1f} without{share}."
    largest = max(row.batch for row in rows)
    if advice.batch is not None and advice.on:
        said += f" From {advice.batch} answers at a time a batch without it writes as much."
    elif advice.on:
        said += f" Up to {largest} answers at a time, a batch without it writes less than one answer with it."
    return f"{said} Recommended: {_word(advice)}."


def _print_json(results: Sequence[Result], notes: Sequence[str], silent: Sequence[str]) -> None:
    rows = [asdict(one) for one in results]
    click.echo(json.dumps({"strategies": rows, "notes": list(notes), "silent": list(silent)}, indent=2))


def _print(results: Sequence[Result], notes: Sequence[str], silent: Sequence[str]) -> None:
    rows = table(
        "machine", "strategy", "model", "cached", "new", "batch", "first token\nwithout", "\nwith",
        "tokens/s\nwithout", "\nwith",
    )  # fmt: skip
    for one in results:
        for row in one.rows:
            rows.add_row(
                one.machine, one.strategy, one.model, f"{row.known:,}", f"{row.new:,}", str(row.batch),
                f"{row.direct.first_s:.2f} s", f"{row.strategy.first_s:.2f} s",
                _rate(row.direct), _rate(row.strategy),
            )  # fmt: skip
    if rows.row_count:
        show(rows)
    if not results:
        click.echo("No strategy was measured: no engine that was asked has one.")
    for one in results:
        click.echo(f"{one.machine}, {one.strategy} ({', '.join(one.stages)}): {one.sentence}")
    for note in [*notes, *(f"{name}: no answer. Run `grader doctor`." for name in silent)]:
        click.echo(f"- {note}")


def _rate(speed: Speed) -> str:
    return "" if speed.tokens_s is None else f"{speed.tokens_s:,.1f}"
