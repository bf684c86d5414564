"""Whether a machine with half of its context is noticed in the next night, by the prompts that it makes.

Machines grade golden submissions as they do each night, with an engine that answers at once: prompts, what is
left out of them, flags and contexts are those of real nights. Between two nights one machine loses half.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import click

from cli.dev.embedded_redis import start_redis
from grading.broker.connections import connect
from grading.broker.leases import Leases
from grading.config.settings import Machine
from grading.domain.document import Cell, Document, Output
from grading.domain.evidence import Evidence
from grading.domain.jobs import Job, Material, Tokens
from grading.domain.rubric import Criterion, Rubric
from grading.domain.shadow_runs import ShadowOutcome
from grading.statistics.golden_runs import SHORTENED, Night, findings, key
from workers.machine import shadow_runs
from workers.machine.engines.base import Capacity, Generation, Progress, Request, TokenCounter
from workers.machine.engines.instant import InstanceMaker, InstantEngine
from workers.machine.shadow_runs import Shadow
from workers.machine.worker import MachineProcess

CONTEXT = 32_768
GOLDEN = 10
MACHINES = ("m0", "m1", "m2")
"""The first one loses half of its context."""
CHARS_A_TOKEN = 4
NIGHT_S = 300.0
STAGE = "analysis"
MODEL = "tiny"
RUBRIC = Rubric(criteria=tuple(Criterion(id=f"c{n}", title=f"Question {n}", points=20) for n in range(5)))
TASK = "Load the sales of the shop, clean them, and answer the questions. Explain each step. " * 12

Way = Literal["configured", "reported", "cut"]
"""How half is lost: config.toml says so; the server was started with half and reports it; or it reports
nothing and cuts what is longer."""
Sizes = Literal["short", "some long", "long"]
"""How long golden submissions are: none, three or all of them longer than half of the context."""
LINES = {False: (40, 250), True: (2300, 2900)}
"""Of a submission that is short, and of one that is long."""
LONG: dict[Sizes, int] = {"short": 0, "some long": 3, "long": GOLDEN}


class Reasons(InstanceMaker):
    """Gives a reason for each level, as a model must."""

    def string(self, path: tuple[str, ...], low: int, high: int | None) -> str:
        """A few words."""
        return "As it is."[:high].ljust(low, ".")


class Emulated(InstantEngine):
    """Answers at once as a server with this context does."""

    uses_model = True

    def __init__(self, context: int) -> None:
        super().__init__()
        self.context = context

    def generate(self, request: Request, progress: Progress) -> Generation:
        """An answer; prompts are counted as far as the server reads them."""
        found = super().generate(request, progress)
        read = min(counted(request.system) + counted(request.user), self.context - request.max_output_tokens)
        text = json.dumps(Reasons(request.schema).make())
        return replace(found, text=text, tokens=Tokens(prompt=read, output=counted(text)))


class Reporting(Emulated):
    """The same of a server that reports its context and counts tokens."""

    def capacity(self, model: str, at_once: int, seconds: float) -> Capacity:
        """What the server reports."""
        return Capacity(context_tokens=self.context)

    def token_counter(self, model: str, seconds: float, progress: Progress) -> TokenCounter:
        """The server's own."""
        return TokenCounter(self.context, counted)


def counted(text: str) -> int:
    """Tokens of a text."""
    return -(-len(text) // CHARS_A_TOKEN)


def machine(name: str, leases: Leases, context: int, way: Way) -> MachineProcess:
    """A machine whose context is that, by one of the ways."""
    engine = {"kind": "instant", "context_tokens": context if way == "configured" else CONTEXT}
    settings = {
        "name": name,
        "slots": 1,
        "engines": {"instant": engine},
        "stages": {STAGE: {"engine": "instant", "model": MODEL}},
    }
    serves = Reporting if way == "reported" else Emulated
    served = serves(CONTEXT if way == "configured" else context)
    return MachineProcess(Machine.model_validate(settings), {"instant": served}, leases, lambda *_: None)


def submission(drawn: random.Random, *, long: bool) -> Document:
    """Homework of a usual length, as a notebook with outputs."""
    left, cells = drawn.randint(*LINES[long]), list[Cell]()
    while left > 0:
        lines = [_line(drawn) for _ in range(min(left, drawn.randint(3, 15)))]
        outputs = (Output(kind="result", text="\n".join(_line(drawn) for _ in range(drawn.randint(1, 12)))),)
        added = tuple(range(1, len(lines) + 1))
        cell = {"kind": "code", "source": "\n".join(lines), "outputs": outputs, "added": added}
        cells.append(Cell.model_validate({"number": len(cells) + 1, "language": "r", **cell}))
        left -= len(lines) + len(outputs[0].text.split("\n"))
    return Document(path="homework.ipynb", kind="notebook", language="r", cells=tuple(cells))


def _line(drawn: random.Random) -> str:
    words = ("sales", "filter", "mean", "price", "region", "<-", "mutate", "(", ")", "month", "2024", "total")
    return " ".join(drawn.choices(words, k=drawn.randint(2, 12)))


def golden(drawn: random.Random, sizes: Sizes) -> list[Job]:
    """The jobs of ten golden submissions."""
    material = Material(title="Sales", task=TASK)
    limits = {"budget_s": NIGHT_S, "max_output_tokens": 1200}
    common = {"stage": STAGE, "material": material, "rubric": RUBRIC, "evidence": Evidence(), **limits}
    documents = [submission(drawn, long=number < LONG[sizes]) for number in range(GOLDEN)]
    return [
        Job.model_validate(
            {
                **common,
                "run_id": f"s{number}",
                "round_id": f"s{number}",
                "documents": (document,),
                "nonce": hashlib.sha256(f"s{number}".encode()).hexdigest()[:16],
            }
        )
        for number, document in enumerate(documents)
    ]


def night(process: MachineProcess, jobs: Sequence[Job], repeats: int) -> Night:
    """What the machine reports of its runs."""
    found: dict[str, list[ShadowOutcome]] = {}
    for _ in range(repeats):
        reported = shadow_runs.grade(process, [Shadow(job) for job in jobs], NIGHT_S)
        for run_id, content in json.loads(json.dumps(reported)).items():
            outcome = ShadowOutcome.model_validate(content)
            found.setdefault(key(run_id, "", outcome), []).append(outcome)
    return found


@dataclass(frozen=True)
class Figures:
    """What came of one way and set of sizes."""

    way: Way
    sizes: Sizes
    sets: int
    """Sets of golden submissions, a night each."""
    noticed: int
    shortened: int
    """Sets of which the machine shortened some submission."""
    blamed: int
    """Other machines that were noticed."""
    false_alarms: int
    """In the night before."""
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.way}, {self.sizes}: noticed {self.noticed}/{self.sets}; shortened in {self.shortened}; "
            f"others blamed {self.blamed}; false alarms {self.false_alarms}; {self.seconds:.0f} s"
        )


def measure(leases: Leases, way: Way, sizes: Sizes, sets: int, repeats: int, seed: int) -> Figures:
    """Play two nights of the same machines, then one in which the first one has half of its context."""
    began = time.perf_counter()
    noticed = shortened = blamed = false_alarms = 0
    for number in range(sets):
        jobs = golden(random.Random(f"{seed} {sizes} {number}"), sizes)
        whole = {name: machine(name, leases, CONTEXT, way) for name in MACHINES}
        first, second = ({name: night(one, jobs, repeats) for name, one in whole.items()} for _ in range(2))
        halved = night(machine("m0", leases, CONTEXT // 2, way), jobs, repeats)
        false_alarms += len(findings(second, first))
        names = {one.machine for one in findings({**second, "m0": halved}, second)}
        noticed += "m0" in names
        blamed += len(names - {"m0"})
        shortened += any(SHORTENED in one.flags for runs in halved.values() for one in runs)
    seconds = time.perf_counter() - began
    return Figures(way, sizes, sets, noticed, shortened, blamed, false_alarms, seconds)


def all_figures(sets: int, repeats: int, seed: int) -> Iterator[Figures]:
    """Every way with every set of sizes."""
    with tempfile.TemporaryDirectory(prefix="grader-bench-") as folder, start_redis(Path(folder)) as redis:
        leases = Leases(connect(redis.url), MACHINES)
        for way in get_args(Way):
            for sizes in get_args(Sizes):
                yield measure(leases, way, sizes, sets, repeats, seed)
        leases.redis.close()


@click.command()
@click.option("--sets", default=20, show_default=True, help="Sets of golden submissions, a night each.")
@click.option("--repeats", default=1, show_default=True, help="Runs of each submission a night.")
@click.option("--seed", default=1, show_default=True, help="Of all that is drawn.")
def command(sets: int, repeats: int, seed: int) -> None:
    """Whether nightly parity notices a machine with half of its context."""
    for one in all_figures(sets, repeats, seed):
        click.echo(str(one))
