"""The figures of the benchmark of engines as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from bench.engines.benchmark import Figures, Model, Target
from bench.engines.measurements import Spread


def lines(figures: Figures) -> Iterator[str]:
    """Everything that was measured; ratios are medians of turns, with the least and the most."""
    yield "  ".join(f"{name} {value}" for name, value in figures.machine.items() if value != "")
    for name, model in figures.models.items():
        yield ""
        yield f"model {name}"
        yield from _model(model)
    yield ""
    yield "targets"
    for target in figures.targets:
        yield f"  {target.model:<5} {_met(target):<13} {_value(target):>9}  {target.aim:<11} {target.what}"
    yield ""
    yield f"took {figures.seconds:g} s"


def _model(model: Model) -> Iterator[str]:
    if model.same:
        yield f"  same tokens as mlx-lm alone: {model.same.same} of {model.same.all} answers"
        yield "    " + "; ".join(f"{way}: {count}" for way, count in model.same.ways.items())
        yield f"    narrowest choice {model.same.narrowest:.1e}  {model.same.first_difference}".rstrip()
    if prefix := model.prefix:
        sizes = prefix.sizes
        yield (
            f"  {prefix.submissions} submissions at once, prefix {sizes.shared} tokens, own {sizes.own}, "
            f"answer {sizes.output}: without cache {prefix.without_s.median:.2f} s"
        )
        yield f"    new prefix    {prefix.first_s.median:6.2f} s  {_ratio(prefix.first_faster)} faster"
        yield f"    cached prefix {prefix.again_s.median:6.2f} s  {_ratio(prefix.again_faster)} faster"
    for bound in model.schema:
        yield (
            f"  bound to a schema, {bound.at_once} at once: {bound.bound_ms.median:.2f} ms per token, "
            f"free {bound.free_ms.median:.2f}: {_ratio(bound.cost)}"
        )
    if model.rates:
        yield "  tokens per second, in total"
        yield (
            f"    {'prefix':<7}{'at once':>8}{'mlx':>9}{'server':>9}{'openai':>9}{'schema':>9}"
            f"  {'mlx to one':<21}{'to server':<21}{'to openai':<21}schema's time"
        )
    for rate in model.rates:
        figures = (rate.mlx, rate.server, rate.openai, rate.bound)
        compared = (rate.to_one, rate.to_server, rate.to_openai, rate.bound_cost)
        yield (
            f"    {rate.prefix:<7}{rate.at_once:>8}"
            + "".join(f"{figure.median:>9.1f}" if figure else f"{'–':>9}" for figure in figures)
            + "  "
            + "".join(f"{_ratio(ratio):<21}" for ratio in compared).rstrip()
        )
    for failure in model.failures:
        yield f"  FAILED {failure.part}, {failure.side}: {failure.why}"


def _ratio(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    return f"{spread.median:.2f} ({spread.least:.2f} to {spread.most:.2f})"


def _met(target: Target) -> str:
    if target.value is None:
        return "not measured"
    return {True: "met", False: "MISSED", None: "–"}[target.met]


def _value(target: Target) -> str:
    return "" if target.value is None else f"{target.value:g}"
