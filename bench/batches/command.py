"""`grader bench batches`: what a batch changes in answers, and what second opinions cost grading."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, cast

import click

from bench.batches import beside, models, rounding
from bench.batches.models import NUMBERS, SIZES, Device, Numbers
from bench.batches.rounding import Answer, Rounding, Way
from bench.engines.benchmark import this_machine

OPINIONS: Sequence[beside.Case] = (
    (0, ""),
    (1, "writing"),
    (5, "writing"),
    (1, "reading"),
    (5, "reading"),
)
"""A machine with eight slots has five second opinions in hand at most."""


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    folder: Path
    devices: Sequence[Device]
    numbers: Sequence[Numbers]
    at_once: Sequence[int]
    requests: int
    tokens: int
    """Of an answer."""
    load: beside.Load


def differences(plan: Plan) -> Iterator[Rounding]:
    """Batches beside answers alone, and answers alone beside those of the first device and numbers."""
    first = dict[bool, list[Answer]]()
    for device in plan.devices:
        for numbers in plan.numbers:
            loaded = models.load(plan.folder, device, numbers)
            wanted = models.asks(loaded, plan.requests, plan.load.shared, plan.load.own, plan.tokens)
            alone = rounding.write(loaded, wanted, 1)
            before = first.setdefault(numbers == "4bit", alone)
            if before is not alone:
                yield rounding.compare(Way(device, numbers, 1), before, alone)
            for at_once in plan.at_once if device == plan.devices[0] else ():
                yield rounding.compare(
                    Way(device, numbers, at_once), alone, rounding.write(loaded, wanted, at_once)
                )


def costs(plan: Plan) -> Iterator[beside.Shared | beside.Delay]:
    """What second opinions cost on the first device."""
    for numbers in plan.numbers:
        loading = partial(models.load, plan.folder, plan.devices[0], numbers)
        loaded = loading()
        for at_once in plan.at_once:
            yield beside.beside(loaded, at_once - 1, plan.load)
        del loaded
        yield from beside.delays(loading, OPINIONS, plan.load)


def _chosen(_context: click.Context, option: click.Parameter, value: str) -> list[str]:
    known = {"devices": ("cpu", "gpu"), "numbers": NUMBERS}[option.name or ""]
    parts = value.split(",")
    if unknown := set(parts) - set(known):
        raise click.BadParameter(f"{min(unknown)!r} is not one of {', '.join(known)}.")
    return parts


def _counts(_context: click.Context, _option: click.Parameter, value: str) -> list[int]:
    try:
        return [int(part) for part in value.split(",")]
    except ValueError as exc:
        raise click.BadParameter("Give whole numbers, separated by commas.") from exc


@click.command("batches")
@click.option(
    "--model", type=click.Choice(list(SIZES)), default="24m", show_default=True, help="Size of the model."
)
@click.option(
    "--devices",
    default="cpu",
    show_default=True,
    callback=_chosen,
    help="Devices: cpu, gpu or both, separated by commas; batches are measured on the first one.",
)
@click.option(
    "--numbers",
    default="bfloat16,4bit,float32",
    show_default=True,
    callback=_chosen,
    help="How the model computes.",
)
@click.option("--at-once", default="4,8,16", show_default=True, callback=_counts, help="Answers in a batch.")
@click.option("--requests", default=16, show_default=True, help="Answers that are compared.")
@click.option("--tokens", default=48, show_default=True, help="Tokens of an answer.")
@click.option("--shared", default=400, show_default=True, help="Tokens of a prompt that all share.")
@click.option("--own", default=100, show_default=True, help="Other tokens of a prompt, at most.")
@click.option("--steps", default=20, show_default=True, help="Decoding steps of a turn with second opinions.")
@click.option(
    "--turns", default=7, show_default=True, help="Turns with second opinions; 0: they are not measured."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    model: str,
    devices: list[str],
    numbers: list[str],
    at_once: list[int],
    requests: int,
    tokens: int,
    shared: int,
    own: int,
    steps: int,
    turns: int,
    as_json: bool,
) -> None:
    """Compare answers alone and in a batch, and measure what second opinions cost grading.

    The model is made on the spot, with random weights.
    """
    found = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="grader-bench-") as folder:
        plan = Plan(
            folder=models.write_model(Path(folder), model),
            devices=cast(Sequence[Device], devices),
            numbers=cast(Sequence[Numbers], numbers),
            at_once=at_once,
            requests=requests,
            tokens=tokens,
            load=beside.Load(shared, own, steps, turns),
        )
        machine = _machine(plan.devices[0])
        click.echo(f"{model} on {machine}", err=as_json)
        for one in chain(differences(plan), costs(plan) if turns else ()):
            found.append(asdict(one))
            click.echo(str(one), err=as_json)
    if as_json:
        click.echo(json.dumps({"machine": machine, "model": model, "found": found}, indent=2))


def _machine(device: Device) -> str:
    """What the first device is, and which mlx computes."""
    import mlx.core as mx

    name = mx.device_info(mx.gpu)["device_name"] if device == "gpu" else this_machine()["processor"]
    return f"{name}, mlx {metadata.version('mlx')}, mlx-lm {metadata.version('mlx-lm')}"
