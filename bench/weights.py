"""Whether other weights behind the same name of a model server are noticed, and the same ones are not.

The server is started by the given command, in turn with two files or folders of weights behind one path.
Starts of a worker are played while batches of changing size run; a swap is a restart of the server with the
other weights between two runs of a worker that lives on.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from bench.model_server_lab import ANSWER_S, VLLM_OPTION, Lab, Remembered, lab_of
from bench.model_servers import (
    GivenCommand,
    ModelServer,
    ServerBroken,
    ending_in_order,
    known_servers,
    missing_for,
)
from grading.broker.kept_digests import KeptDigests
from grading.domain.errors import EngineError, ModelMissing, OutputEmpty, OutputEndless, OutputTruncated
from grading.domain.model_behaviour import decode, distance
from workers.machine.engines.base import Engine, Request, unheard
from workers.machine.model_digests import ModelDigests

SIZES = (0, 1, 2, 3, 5, 8)
"""Requests at once beside what is measured."""
SLOTS = 8
WORDS = ("the", "box", "in", "what", "of", "data", "plot", "mean")


@dataclass
class Measured:
    """What came of it."""

    starts: int = 0
    false_alarms: int = 0
    largest_difference: float = 0.0
    """Of log-probabilities, between the first start and any other."""
    swaps: int = 0
    noticed: int = 0
    difference_of_weights: float = 0.0
    """The smallest, between the two."""
    back_refused: int = 0
    """The first weights again, called other ones."""
    check_s: list[float] = field(default_factory=list)
    restart_s: list[float] = field(default_factory=list)


def ask(lab: Lab, drawn: random.Random) -> Request:
    """A short request."""
    user = " ".join(drawn.choices(WORDS, k=drawn.randint(5, 120)))
    return lab.request(user, drawn.randint(8, 40), temperature=0.7)


@contextmanager
def batches(lab: Lab, sizes: list[int]) -> Iterator[None]:
    """Other requests at the same time, as many as `sizes` says at the moment."""
    over = threading.Event()

    def load(number: int) -> None:
        drawn = random.Random(number)
        with lab.worker(Remembered()) as (engine, _):
            while not over.is_set():
                if number >= sizes[-1]:
                    over.wait(0.02)
                    continue
                with suppress(EngineError):
                    engine.generate(ask(lab, drawn), unheard)

    threads = [threading.Thread(target=load, args=(number,)) for number in range(max(SIZES))]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def measure(lab: Lab, starts: int, swaps: int, drawn: random.Random) -> Measured:
    """Play the starts under the first weights, then the swaps."""
    made, kept, sizes = Measured(), Remembered(), [0]
    with ExitStack() as running:
        running.enter_context(lab.serving(0))
        with lab.worker(kept) as (_, digests):
            digests.verify(lab.place, ANSWER_S)
        with batches(lab, sizes):
            for number in range(starts):
                sizes.append(SIZES[number // 5 % len(SIZES)])
                _start(lab, kept, made)
        for _ in range(swaps):
            _swap(lab, kept, made, running, drawn)
    return made


def _swap(lab: Lab, kept: KeptDigests, made: Measured, running: ExitStack, drawn: random.Random) -> None:
    """Other weights between two runs of one worker, and the first ones again; these run before and after."""

    def restart(which: int) -> None:
        began = time.monotonic()
        running.close()
        running.enter_context(lab.serving(which))
        made.restart_s.append(time.monotonic() - began)

    made.swaps += 1
    with lab.worker(kept) as (engine, digests):
        _answer(lab, engine, drawn)
        digests.verify(lab.place, ANSWER_S)
        restart(1)
        made.noticed += _refused(lab, engine, digests, drawn)
        apart = _apart(kept.get(*lab.place), digests.known(lab.place))
        made.difference_of_weights = min(made.difference_of_weights or apart, apart)
        restart(0)
        made.back_refused += _refused(lab, engine, digests, drawn)


def _start(lab: Lab, kept: KeptDigests, made: Measured) -> None:
    """One start of a worker: its first look at the weights."""
    place = lab.place
    with lab.worker(kept) as (engine, digests):
        began = time.monotonic()
        made.starts += 1
        try:
            digests.verify(place, ANSWER_S)
        except ModelMissing:
            made.false_alarms += 1
        made.check_s.append(time.monotonic() - began)
        now = engine.digest(lab.model, ANSWER_S)  # type: ignore[attr-defined]
        made.largest_difference = max(made.largest_difference, _apart(kept.get(*place), now))


def _refused(lab: Lab, engine: Engine, digests: ModelDigests, drawn: random.Random) -> bool:
    """Whether a run's answer is refused for its weights."""
    told = _answer(lab, engine, drawn)
    try:
        digests.verify(lab.place, ANSWER_S, told)
    except ModelMissing:
        return True
    return False


def _answer(lab: Lab, engine: Engine, drawn: random.Random) -> str:
    """The digest that an answer tells; random models now and then write nothing that can be read."""
    try:
        return engine.generate(ask(lab, drawn), unheard).digest
    except (OutputEmpty, OutputTruncated, OutputEndless):
        return ""


def _apart(one: str, other: str) -> float:
    here, there = decode(one), decode(other)
    return distance(here.positions, there.positions) if here is not None and there is not None else 0.0


def _server(
    named: str, vllm: str, weights: tuple[Path | None, Path | None], model: str, kind: str
) -> ModelServer:
    """A known server by its name, or any other by its command."""
    known = known_servers(vllm).get(named)
    if known is None:
        first, second = weights
        if first is None or second is None:
            names = ", ".join(known_servers())
            raise click.UsageError(f"Give --first and --second with a command, or one of {names}.")
        return GivenCommand(named, (first, second), model, kind)
    if missing := missing_for(known):
        raise click.ClickException(f"{named} is not here: it needs {missing}.")
    return known


@click.command("weights")
@click.option(
    "--server",
    required=True,
    help="Known server (llama.cpp, mlx_lm.server, vllm, ollama), or a command with {weights} and {port}.",
)
@click.option("--first", type=click.Path(path_type=Path, exists=True), help="Weights for a command.")
@click.option("--second", type=click.Path(path_type=Path, exists=True), help="Other weights for it.")
@click.option("--model", default="", help="Name of a command's model; by default, the path of the weights.")
@click.option("--kind", default="openai", show_default=True, help="Engine that speaks to a command's server.")
@VLLM_OPTION
@click.option("--starts", default=200, show_default=True, help="Starts of a worker with the same weights.")
@click.option("--swaps", default=20, show_default=True, help="Swaps of the weights.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    server: str,
    first: Path | None,
    second: Path | None,
    model: str,
    kind: str,
    vllm: str,
    starts: int,
    swaps: int,
    as_json: bool,
) -> None:
    """Measure whether swapped weights of a model server are noticed, and equal ones are not.

    Exits with 1 if a swap was not noticed or equal weights were called other ones.
    """
    under_test = _server(server, vllm, (first, second), model, kind)
    with tempfile.TemporaryDirectory() as folder:
        lab = lab_of(under_test, Path(folder), SLOTS)
        try:
            with ending_in_order():
                made = measure(lab, starts, swaps, random.Random(1))
        except ServerBroken as error:
            raise click.ClickException(str(error)) from error
    check_s, restart_s = (statistics.median(took) if took else 0.0 for took in (made.check_s, made.restart_s))
    if as_json:
        click.echo(json.dumps({**asdict(made), "check_s": check_s, "restart_s": restart_s}))
    else:
        click.echo(f"starts with the same weights: {made.starts}, called other ones: {made.false_alarms}")
        click.echo(f"largest difference of log-probabilities: {made.largest_difference:.4f}")
        click.echo(f"swaps: {made.swaps}, noticed before a grade: {made.noticed}")
        click.echo(f"difference of the other weights: {made.difference_of_weights:.4f}")
        click.echo(f"the first weights again: refused {made.back_refused} times")
        click.echo(f"one check under load: {check_s:.3f} s")
        click.echo(f"one restart of the server: {restart_s:.1f} s")
    if made.false_alarms or made.back_refused or made.noticed < made.swaps:
        raise SystemExit(1)
