"""What the engines for models do on this machine: the `mlx` engine beside a real `mlx_lm.server`, in one run.

Everything runs on loopback with models made on the spot. Sides take turns, and ratios are medians of the
ratios of turns, so that a busy machine slows both. A run ends by its limit, whatever the machine.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.engines.measurements import (
    KINDS,
    Bound,
    Clock,
    Failure,
    Here,
    Prefix,
    Rate,
    Same,
    rates,
    same_tokens,
    schema_cost,
    shared_prefix,
)
from bench.engines.workload import MODELS, Prompts, Sizes, legible_model

MOST_COST = 1.05
"""Of a schema: time a token, beside that without one."""


@dataclass(frozen=True)
class Plan:
    """How much is measured. `turns` is the most of a part; `limit_s` bounds the whole run."""

    models: tuple[str, ...]
    at_once: tuple[int, ...]
    many: int
    """Requests at once where only one number is measured; the targets are about it."""
    turns: int
    limit_s: float
    same: Sizes
    prefix: Sizes
    rate: Sizes
    schema: Sizes


FULL = Plan(
    models=("tiny", "24m"),
    at_once=(1, 2, 4, 8, 16),
    many=8,
    turns=15,
    limit_s=1200.0,
    same=Sizes(400, 40, 48),
    prefix=Sizes(3000, 300, 16),
    rate=Sizes(256, 32, 48),
    schema=Sizes(256, 32, 1200),
)
QUICK = Plan(
    models=("tiny", "24m"),
    at_once=(1, 8),
    many=8,
    turns=2,
    limit_s=45.0,
    same=Sizes(150, 24, 16),
    prefix=Sizes(600, 60, 8),
    rate=Sizes(128, 24, 32),
    schema=Sizes(128, 24, 160),
)
SAME, PREFIX, SCHEMA, RATES = 1.0, 3.0, 3.0, 3.5
"""Shares of a model's time."""
WEIGHT_OF_MODEL = {"tiny": 1.0, "24m": 3.0}


@dataclass(frozen=True)
class Target:
    """A figure that is aimed at. A `must` that is not met is an error."""

    model: str
    what: str
    aim: str
    value: float | None
    met: bool | None
    """None where it was not measured, or nothing is aimed at."""
    must: bool = False


@dataclass(frozen=True)
class Model:
    """All that was measured of one model; nothing where the time was over."""

    same: Same | None
    prefix: Prefix | None
    schema: list[Bound]
    rates: list[Rate]
    failures: list[Failure]
    """What went wrong, beside all that was measured."""


@dataclass(frozen=True)
class Figures:
    """The figures of one run."""

    machine: dict[str, Any]
    models: dict[str, Model]
    targets: list[Target]
    seconds: float

    @property
    def broken(self) -> list[Target]:
        """What must be met and is not."""
        return [target for target in self.targets if target.must and not target.met]

    @property
    def failed(self) -> bool:
        """Whether a side failed somewhere."""
        return any(model.failures for model in self.models.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure(plan: Plan, say: Callable[[str], None]) -> Figures:
    """Run the benchmark; `say` gets a line now and then."""
    shares = [WEIGHT_OF_MODEL[name] for name in plan.models]
    clock = Clock(plan.limit_s, [SAME * share for share in shares])
    clock.weights += [weight * share for share in shares for weight in (PREFIX, SCHEMA, RATES)]
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="grader-bench-") as folder:
        heres = [_here(plan, clock, name, Path(folder) / name, say) for name in plan.models]
        same = {here.name: same_tokens(here, plan.same) for here in heres}  # first, because it must be met
        models = {
            here.name: Model(
                same=same[here.name],
                prefix=shared_prefix(here, plan.prefix),
                schema=schema_cost(here, plan.schema, (1, plan.many)),
                rates=rates(here, plan.rate, plan.at_once),
                failures=here.failures,
            )
            for here in heres
        }
    targets = [target for name, model in models.items() for target in _targets(name, model, plan.many)]
    return Figures(machine, models, targets, round(clock.elapsed, 1))


def _here(plan: Plan, clock: Clock, name: str, folder: Path, say: Callable[[str], None]) -> Here:
    model = legible_model(folder, MODELS[name])

    def tell(line: str) -> None:
        say(f"{clock.elapsed:5.0f} s  {name:<5} {line}")

    return Here(name, model, Prompts(model), clock, plan.many, plan.turns, tell)


def _targets(name: str, model: Model, many: int) -> list[Target]:
    same, prefix = model.same, model.prefix
    found = [
        Target(
            name,
            "answers with the very tokens of mlx-lm alone",
            f"all {same.all}" if same else "all",
            same.same if same else None,
            same.same == same.all if same else None,
            must=True,
        ),
        _least(
            name,
            f"faster by a shared prefix, {many} at once, making it included",
            3.5,
            prefix.first_faster.median if prefix else None,
        ),
    ]
    for kind in KINDS:
        rate = next((r for r in model.rates if r.at_once == many and r.prefix == kind), None)
        one = rate.to_one.median if rate else None
        other = rate.to_server.median if rate and rate.to_server else None
        found.append(_least(name, f"tokens per second, {many} at once beside one, {kind} prefix", 2.5, one))
        found.append(_least(name, f"beside mlx_lm.server, {many} at once, {kind} prefix", 1.0, other))
    return found + [_schema(name, bound) for bound in model.schema]


def _least(name: str, what: str, aim: float, value: float | None) -> Target:
    return Target(name, what, f"≥ {aim}", value, None if value is None else value >= aim)


def _schema(name: str, bound: Bound) -> Target:
    cost, aimed = bound.cost.median, name != "tiny"  # its steps are shorter than those of any real model
    what = f"time a token bound to a schema beside free, {bound.at_once} at once"
    return Target(name, what, f"< {MOST_COST}" if aimed else "", cost, cost < MOST_COST if aimed else None)


def this_machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import mlx.core as mx

    device = str(mx.default_device())
    return {
        "processor": _processor(),
        "cores": _cores(),
        "load_before": round(os.getloadavg()[0], 2),
        "device": device,
        "blas": _blas() if "cpu" in device.lower() else "",
        "precision": "float32",
        **{name: metadata.version(name) for name in ("mlx", "mlx-lm", "llguidance")},
        "python": platform.python_version(),
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        lines: Sequence[str] = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _blas() -> str:
    """Which library multiplies matrices here, for both sides: the server inherits this environment."""
    try:
        mapped = Path("/proc/self/maps").read_text()
    except OSError:
        return "Accelerate" if platform.system() == "Darwin" else "unknown"
    return "OpenBLAS" if "libopenblas" in mapped else "the one that mlx brings along"
