"""`grader rehearse`: a made-up class on every machine, engine, model and stage before the term begins."""

from __future__ import annotations

import json
import secrets
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from cli.doctor.machines import OTHERWISE, REMEDIES
from cli.examinations import ask_machines
from cli.settings import Settings, complete_machine
from cli.tables import show, table
from grading.broker.celery_app import REHEARSE
from grading.broker.machine_status import MachineState, peer
from grading.documents import Identity
from grading.domain.errors import GraderError
from grading.domain.model_digests import Claim, differing, short
from grading.execution.values import Execution
from grading.scheduling import capacity_plan
from grading.scheduling.capacity_plan import Machine, speed_profile_of
from grading.scheduling.cluster_view import Peer
from grading.store.assignments import versions
from workers.server.context import Server, open_server
from workers.server.prepare import NO_SANDBOX, ReceivedSubmission, make_ready

LEAST_CACHED = 0.1
"""Share of prompt tokens from which on a prefix cache is in use: what a class shares is most of a prompt."""
TELL_NO_CACHE = {"ollama"}
"""Engines whose servers have a prefix cache and never tell what came from it."""
OUTPUTS = {
    "output_truncated": "raise max_output_tokens of the stage",
    "output_invalid": "use a server that binds answers to the JSON schema, or a larger model",
    "output_empty": "look whether the server knows the model's chat template",
}
"""What to do when a model wrote nothing that can be used."""
SHORTENED, CLOSED = "shortened", "answer_shortened"


@dataclass(frozen=True)
class Figures:
    """What a machine came to with one stage. Durations in seconds, medians of the runs that succeeded."""

    machine: str
    slots: int
    stage: str
    engine: str
    model: str
    digest: str
    runs: int
    succeeded: int
    together: int
    """Runs that the engine worked on at the same time, at most."""
    run_s: float | None
    first_token_s: float | None
    output_tokens_s: float
    """Output tokens a second, all runs together."""
    cached: float | None
    """Share of the prompt tokens that came from a prefix cache; None without a prompt."""
    hour: float
    """Runs an hour."""
    predicted_hour: float | None
    """The same as the machine predicted it from earlier runs, or as config.toml says."""
    change: tuple[str, ...]
    """What to change, a sentence each."""


@click.command()
@click.argument("assignment", metavar="COURSE/SLUG")
@click.option("--machine", "names", multiple=True, shell_complete=complete_machine,
              help="Only this machine; repeatable.")  # fmt: skip
@click.option("--runs", default=20, show_default=True, type=click.IntRange(1, 500),
              help="Runs of each stage: the size of the class.")  # fmt: skip
@click.option("--patience", default=1800.0, show_default=True, type=click.FloatRange(1, 7200),
              help="Longest wait for all machines, in seconds.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_obj
def rehearse(
    settings: Settings, assignment: str, names: tuple[str, ...], runs: int, patience: float, as_json: bool
) -> None:
    """Try a class on every machine, model and stage.

    Grades the assignment's own solution and starter as a class would, and says what to change before the term
    begins. No grades are stored. Machines grade students' work beside it, so run it while nobody submits.
    Exits with status 1 if a run fails.
    """
    server = open_server(settings.running)
    try:
        jobs = class_jobs(server, assignment)
        states = [one for one in server.dispatch.machines() if one.alive and (not names or one.name in names)]
        if not states:
            raise GraderError("No machine is running. Start the workers first; `grader doctor` says which.")
        if not as_json:
            machines = ", ".join(state.name for state in states)
            click.echo(f"{runs} runs of each stage on {machines}; at most {patience:.0f} s.")
        answers = ask_machines(
            server.dispatch,
            REHEARSE,
            [state.name for state in states],
            [jobs, runs],
            patience,
            worth_waiting=lambda state: state.alive,
        )
    finally:
        server.store.close()
        server.dispatch.registry.redis.close()
        server.dispatch.celery.close()
    figures = [
        figures_of(state, found, answers[state.name]["slots"])
        for state in states
        for found in answers.get(state.name, {}).get("stages", ())
    ]
    silent = [state.name for state in states if not answers.get(state.name)]
    (_print_json if as_json else _print)(figures, silent, runs)
    failed = sum(one.runs - one.succeeded for one in figures)
    if failed or silent:
        raise GraderError(f"{failed} runs failed, {len(silent)} machines did not answer.")


def class_jobs(server: Server, name: str) -> list[dict[str, Any]]:
    """Jobs of each stage for the solution and the starter of an assignment. Raises GraderError.

    Nothing is run in the sandbox: checks of outcomes say so in the prompts.
    """
    with server.store.read() as session:
        assignment = versions.find_by_name(session, name)
        version = server.versions.get(session, versions.published_version(session, assignment).id)
    works = [work for work in (version.solution, version.starter) if work]
    if not works:
        raise GraderError(f"'{name}' has neither a solution nor a starter, so there is nothing to grade.")
    jobs = []
    for work in works:
        received = ReceivedSubmission("", "", "batch", version, work, Identity(), {})
        plan = received.plan(server)
        nothing = Execution(end="not run", reason=NO_SANDBOX)
        ready = make_ready(received, plan, dict.fromkeys(plan.requests, nothing)).model_dump(mode="json")
        for stage in version.materials:
            jobs.append(
                {
                    "run_id": "rehearsal",
                    "round_id": "rehearsal",
                    "stage": stage,
                    "material": version.material(stage),
                    "rubric": version.rubric_json,
                    "documents": ready["documents"],
                    "evidence": ready["hidden_evidence"],
                    "nonce": secrets.token_hex(8),
                    **server.config.stages[stage].model_dump(exclude_none=True),
                }
            )
    return jobs


def figures_of(state: MachineState, found: Mapping[str, Any], slots: int) -> Figures:
    """The figures of a stage, and what they ask for."""
    rows = found["runs"]
    good = [row for row in rows if row["ok"]]
    prompt = sum(row["tokens"]["prompt"] for row in good)
    seconds = max(float(found["seconds"]), 1e-9)
    firsts = [row["first_token_s"] for row in good if row["first_token_s"] is not None]
    digests = sorted({row["digest"] for row in good if row["digest"]})
    return Figures(
        machine=state.name,
        slots=slots,
        stage=found["stage"],
        engine=found["engine"],
        model=found["model"],
        digest=digests[0] if digests else str(found["digest"]),
        runs=len(rows),
        succeeded=len(good),
        together=found["together"],
        run_s=statistics.median(row["seconds"] for row in good) if good else None,
        first_token_s=statistics.median(firsts) if firsts else None,
        output_tokens_s=sum(row["tokens"]["output"] for row in good) / seconds,
        cached=sum(row["tokens"]["cached"] for row in good) / prompt if prompt else None,
        hour=3600 * len(good) / seconds,
        predicted_hour=_predicted(state, found["stage"], slots),
        change=tuple(_changes(found, slots, digests)),
    )


def _predicted(state: MachineState, stage: str, slots: int) -> float | None:
    """Runs an hour by what the machine measured of earlier runs."""
    profile = peer(state.heartbeat).speed_profiles.get(stage) if state.heartbeat is not None else None
    return 3600 * profile.rate(slots) if profile is not None and profile.seen >= 1 else None


def _changes(found: Mapping[str, Any], slots: int, digests: Sequence[str]) -> Iterator[str]:
    rows = found["runs"]
    good = [row for row in rows if row["ok"]]
    for (code, message), count in Counter((r["error"], r["message"]) for r in rows if not r["ok"]).items():
        remedy = OUTPUTS.get(code) or REMEDIES.get(code, OTHERWISE).text
        yield f"{count} of {len(rows)} runs failed: {message} To fix it, {remedy}."
    if len(digests) > 1:
        yield "The model changed during the rehearsal: several programs change what the server has loaded."
    if any(row["tokens"]["prompt"] for row in good):
        yield from _of_server(found, good, min(slots, len(rows)))
    if any(row["schema"].startswith("none") for row in good):
        yield "The server does not bind answers to the JSON schema: use a server and a model that do."
    if repaired := sum(row["repaired"] for row in good):
        yield f"{repaired} of {len(good)} answers had to be asked for again: their first form was not valid."
    if shortened := sum(SHORTENED in row["flags"] for row in good):
        yield (
            f"{shortened} prompts were shortened: raise context_tokens above {found['context_tokens']}, "
            "if the model and the memory allow it."
        )
    if closed := sum(CLOSED in row["flags"] for row in good):
        yield f"{closed} answers were brought to an end early: raise max_output_tokens of the stage."


def _of_server(found: Mapping[str, Any], good: Sequence[Mapping[str, Any]], expected: int) -> Iterator[str]:
    """Settings of the engine's server: how many it serves at once, and its prefix cache."""
    together = found["together"]
    if expected > 1 and together <= expected / 2:
        yield (
            f"The engine worked on at most {together} of {expected} runs at the same time: let it serve "
            f"more in parallel (OLLAMA_NUM_PARALLEL, --parallel), or set slots = {max(together, 1)}."
        )
    prompt = sum(row["tokens"]["prompt"] for row in good)
    cached = sum(row["tokens"]["cached"] for row in good)
    if len(good) > 1 and cached < LEAST_CACHED * prompt and found["kind"] not in TELL_NO_CACHE:
        yield (
            "Hardly any prompt tokens came from a prefix cache: turn the engine's prefix cache on, "
            "and let it tell (vLLM: --enable-prompt-tokens-details)."
        )


def class_seconds(figures: Iterable[Figures], runs: int) -> float | None:
    """How long a class of this size takes on all machines by these figures; None where a stage failed."""
    profiles: dict[str, dict[str, Any]] = {}
    slots = {}
    for one in figures:
        if one.hour:
            speed = speed_profile_of(one.hour / 3600, one.slots)
            profiles.setdefault(one.machine, {})[one.stage] = speed
            slots[one.machine] = one.slots
    machines = [
        Machine(Peer(name, slots[name], tuple(of), speed_profiles=of), kind=name, own=next(iter(of)))
        for name, of in profiles.items()
    ]
    stages = sorted({one.stage for one in figures})
    try:
        return 3600 * capacity_plan.plan(machines, stages, runs).hours
    except (capacity_plan.NobodyDoes, ValueError):
        return None


def weights(figures: Iterable[Figures]) -> list[str]:
    """Where machines have other weights under the same name, a sentence each."""
    told = [Claim(one.machine, one.engine, one.model, one.digest) for one in figures if one.digest]
    return [f"{one.message} To fix it, {one.remedy}." for one in differing(told)]


def _print_json(figures: Sequence[Figures], silent: Sequence[str], runs: int) -> None:
    rows = [asdict(one) for one in figures]
    whole = {"runs": runs, "class_seconds": class_seconds(figures, runs), "weights": weights(figures)}
    click.echo(json.dumps({**whole, "silent": list(silent), "stages": rows}, indent=2))


def _print(figures: Sequence[Figures], silent: Sequence[str], runs: int) -> None:
    rows = table(
        "machine", "stage", "model", "digest", "ok", "parallel", "first\ntoken", "tokens/s", "cached", "run",
        "runs/h", "expected",
    )  # fmt: skip
    for one in figures:
        rows.add_row(
            one.machine, one.stage, f"{one.model} ({one.engine})", short(one.digest) if one.digest else "",
            f"{one.succeeded}/{one.runs}", f"{one.together}/{one.slots}", _seconds(one.first_token_s),
            f"{one.output_tokens_s:,.0f}", "" if one.cached is None else f"{one.cached:.0%}",
            _seconds(one.run_s), f"{one.hour:,.0f}",
            "" if one.predicted_hour is None else f"{one.predicted_hour:,.0f}",
        )  # fmt: skip
    show(rows)
    whole = class_seconds(figures, runs)
    if whole is not None:
        click.echo(f"With these speeds, a class of {runs} takes about {_seconds(whole)}.")
    changes = [f"{one.machine}, {one.stage}: {sentence}" for one in figures for sentence in one.change]
    changes += weights(figures)
    changes += [f"{name}: no answer. Run `grader doctor`." for name in silent]
    click.echo("To change:" if changes else "Nothing to change.")
    for sentence in changes:
        click.echo(f"- {sentence}")


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds >= 300:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
