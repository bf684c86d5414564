"""Whether other weights behind the same name of a model server are noticed, and the same ones are not.

The server is started by the given command, in turn with two files or folders of weights behind one path.
Starts of a worker are played while batches of changing size run; a swap is a restart of the server with the
other weights between two runs of a worker that lives on.
"""

from __future__ import annotations

import json
import random
import shlex
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
from redis import Redis

from bench.engines.workload import job
from cli.dev.embedded_redis import free_port
from grading.broker.kept_digests import KeptDigests
from grading.config.machines import Machine
from grading.domain.errors import EngineError, ModelMissing, OutputEmpty, OutputEndless, OutputTruncated
from grading.domain.model_behaviour import decode, distance
from workers.machine.engines import open_engines
from workers.machine.engines.base import Engine, Phase, Request
from workers.machine.model_digests import ModelDigests

SIZES = (0, 1, 2, 3, 5, 8)
"""Requests at once beside what is measured."""
START_S = 120.0
ANSWER_S = 60.0
PLACE = "server"
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


class Remembered(KeptDigests):
    """Kept in memory, as Redis keeps them."""

    def __init__(self) -> None:
        super().__init__(Redis(), "bench")
        self._kept: dict[tuple[str, str], str] = {}

    def first(self, engine: str, model: str, digest: str) -> str:
        """See `KeptDigests`."""
        return self._kept.setdefault((engine, model), digest)

    def get(self, engine: str, model: str) -> str:
        """See `KeptDigests`."""
        return self._kept.get((engine, model), "")


@dataclass(frozen=True)
class Lab:
    """A server that is started with either weights, and the worker's view of it."""

    command: str
    kind: str
    weights: tuple[Path, Path]
    link: Path
    port: int
    model: str

    @property
    def machine(self) -> Machine:
        """One machine with that server."""
        tail = "/v1" if self.kind == "openai" else ""
        settings = {"kind": self.kind, "url": f"http://127.0.0.1:{self.port}{tail}"}
        stages = {"analysis": {"engine": PLACE, "model": self.model}}
        return Machine.model_validate({"name": "bench", "engines": {PLACE: settings}, "stages": stages})

    @contextmanager
    def serving(self, which: int) -> Iterator[None]:
        """The server with the first (0) or the second (1) weights; ended by its process id."""
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(self.weights[which].resolve())
        words = [word.format(weights=self.link, port=self.port) for word in shlex.split(self.command)]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._await(process)
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + START_S
        page = f"http://127.0.0.1:{self.port}/{'v1/models' if self.kind == 'openai' else 'api/tags'}"
        while time.monotonic() < end and process.poll() is None:
            with suppress(OSError, urllib.error.URLError), urllib.request.urlopen(page, timeout=2) as answer:
                if answer.status == 200:
                    return
            time.sleep(0.1)
        raise click.ClickException(f"The server did not start: {self.command}")

    @contextmanager
    def worker(self, kept: KeptDigests) -> Iterator[tuple[Engine, ModelDigests]]:
        """What a worker has of the server after its start."""
        engines = open_engines(self.machine)
        with closing(engines[PLACE]):
            yield engines[PLACE], ModelDigests(self.machine, engines, kept)

    def ask(self, drawn: random.Random) -> Request:
        """A short request."""
        user = " ".join(drawn.choices(WORDS, k=drawn.randint(5, 120)))
        most = drawn.randint(8, 40)
        return Request(job(most), self.model, "Say something.", user, {}, most, 0.7, ANSWER_S)

    @contextmanager
    def batches(self, sizes: list[int]) -> Iterator[None]:
        """Other requests at the same time, as many as `sizes` says at the moment."""
        over = threading.Event()

        def load(number: int) -> None:
            drawn = random.Random(number)
            with self.worker(Remembered()) as (engine, _):
                while not over.is_set():
                    if number >= sizes[-1]:
                        over.wait(0.02)
                        continue
                    with suppress(EngineError):
                        engine.generate(self.ask(drawn), _unheard)

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
    made, kept = Measured(), Remembered()
    place, sizes = (PLACE, lab.model), [0]
    with lab.serving(0):
        with lab.worker(kept) as (_, digests):
            digests.verify(place, ANSWER_S)
        with lab.batches(sizes):
            for number in range(starts):
                sizes.append(SIZES[number // 5 % len(SIZES)])
                _start(lab, kept, made)
    for _ in range(swaps):
        made.swaps += 1
        with lab.worker(kept) as (engine, digests):
            with lab.serving(0):
                _answer(lab, engine, drawn)
                digests.verify(place, ANSWER_S)
            with lab.serving(1):
                made.noticed += _refused(lab, engine, digests, drawn)
                apart = _apart(kept.get(*place), digests.known(place))
                made.difference_of_weights = min(made.difference_of_weights or apart, apart)
            with lab.serving(0):
                made.back_refused += _refused(lab, engine, digests, drawn)
    return made


def _start(lab: Lab, kept: KeptDigests, made: Measured) -> None:
    """One start of a worker: its first look at the weights."""
    place = (PLACE, lab.model)
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
        digests.verify((PLACE, lab.model), ANSWER_S, told)
    except ModelMissing:
        return True
    return False


def _answer(lab: Lab, engine: Engine, drawn: random.Random) -> str:
    """The digest that an answer tells; random models now and then write nothing that can be read."""
    try:
        return engine.generate(lab.ask(drawn), _unheard).digest
    except (OutputEmpty, OutputTruncated, OutputEndless):
        return ""


def _apart(one: str, other: str) -> float:
    here, there = decode(one), decode(other)
    return distance(here.positions, there.positions) if here is not None and there is not None else 0.0


def _unheard(_tokens: int, _phase: Phase = "generating", _draft: str = "", /) -> None:
    """Progress of what nobody waits for."""


@click.command("weights")
@click.option("--server", required=True, help="Command that starts it, with {weights} and {port}.")
@click.option("--first", type=click.Path(path_type=Path, exists=True), required=True, help="Weights.")
@click.option("--second", type=click.Path(path_type=Path, exists=True), required=True, help="Other weights.")
@click.option("--model", default="", help="Name of the model; by default, the path of the weights.")
@click.option("--kind", default="openai", show_default=True, help="Engine that speaks to the server.")
@click.option("--starts", default=200, show_default=True, help="Starts of a worker with the same weights.")
@click.option("--swaps", default=20, show_default=True, help="Swaps of the weights.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    server: str, first: Path, second: Path, model: str, kind: str, starts: int, swaps: int, as_json: bool
) -> None:
    """Measure whether swapped weights of a model server are noticed, and equal ones are not.

    Exits with 1 if a swap was not noticed or equal weights were called other ones.
    """
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / f"weights{first.suffix}"
        lab = Lab(server, kind, (first, second), link, free_port(), model or str(link))
        made = measure(lab, starts, swaps, random.Random(1))
    check_s = statistics.median(made.check_s) if made.check_s else 0.0
    if as_json:
        click.echo(json.dumps({**asdict(made), "check_s": check_s}))
    else:
        click.echo(f"starts with the same weights: {made.starts}, called other ones: {made.false_alarms}")
        click.echo(f"largest difference of log-probabilities: {made.largest_difference:.4f}")
        click.echo(f"swaps: {made.swaps}, noticed before a grade: {made.noticed}")
        click.echo(f"difference of the other weights: {made.difference_of_weights:.4f}")
        click.echo(f"the first weights again: refused {made.back_refused} times")
        click.echo(f"one check under load: {check_s:.3f} s")
    if made.false_alarms or made.back_refused or made.noticed < made.swaps:
        raise SystemExit(1)
