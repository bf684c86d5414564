"""`grader bench router`: the product and other people's routers against the same emulated machines."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bench.router.results import Outcome, Plan
    from bench.router.scenarios import Scenario


QUICK = ("backlog12",)
QUICK_WAYS = "ours,roles,shortest"


@click.command("router")
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    help="Scenario; can be repeated: also backlogN, lostN, slowN.  "
    "[default: backlog400, backlog1000, poisson80]",
)
@click.option(
    "--only",
    help="Routers, separated by commas: ours, second-opinions (ours with them), pinned, roles, shortest, "
    "litellm-…, sglang-…, vllm-….",
)
@click.option(
    "--compress",
    default=20.0,
    show_default=True,
    type=click.FloatRange(1, 20),
    help="Emulated seconds per second.",
)
@click.option("--slots", default=16, show_default=True, help="Slots of each machine.")
@click.option("--at-once", default=64, show_default=True, help="Concurrent requests of the client.")
@click.option("--seed", default=1, show_default=True, help="Seed of the submissions.")
@click.option(
    "--cluster-model",
    default="own",
    show_default=True,
    help="Cost model: own, other, flat, one-mac or long; all except own need --only ours.",
)
@click.option(
    "--learn",
    default=0,
    show_default=True,
    help="Submissions graded before, for routers that learn.",
)
@click.option("--tune", is_flag=True, help="Tune the number of slots by measurement.")
@click.option("--quick", is_flag=True, help="Short benchmark of one minute; installs nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    scenarios: tuple[str, ...], only: str | None, compress: float, slots: int, at_once: int, seed: int,
    cluster_model: str, learn: int, tune: bool, quick: bool, as_json: bool,
) -> None:  # fmt: skip
    """Compare routing with other routers, on emulated machines."""
    from bench.router import competitors, results
    from bench.router.results import Plan

    names = scenarios or (QUICK if quick else ("backlog400", "backlog1000", "poisson80"))
    ways = _ways(only or (QUICK_WAYS if quick else ""))
    if cluster_model != "own" and not set(ways) <= {*results.PRODUCT}:
        raise click.BadParameter("needs --only ours.", param_hint="--cluster-model")
    plans = [Plan(_scenario(name, slots, seed, cluster_model), compress, at_once, learn) for name in names]
    played = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception: what was started is ended
    try:
        if any(way in competitors.COMPETITORS and competitors.COMPETITORS[way].installed for way in ways):
            competitors.install(_say)
        for plan in plans:
            outcomes = []
            for way in ways:
                _say(f"{plan.scenario.name}: {way}")
                outcomes.append(_play(way, plan, tune))
                _say(f"  {outcomes[-1].makespan:.0f} s, p95 {outcomes[-1].took(0.95):.0f} s")
            played.append(results.ScenarioResult(plan, outcomes))
    except (competitors.Missing, TimeoutError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps([one.as_dict() for one in played], indent=2))
    else:
        click.echo("\n".join(results.table(played)))
    if any(outcome.failed or not outcome.ended for one in played for outcome in one.outcomes):
        raise SystemExit(1)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _ways(only: str) -> list[str]:
    """Those that were named; else all."""
    from bench.router.competitors import COMPETITORS
    from bench.router.results import OURS, PRODUCT

    known = (*PRODUCT, *COMPETITORS)
    ways = only.split(",") if only else [OURS, *COMPETITORS]
    if unknown := set(ways) - set(known):
        raise click.BadParameter(f"{min(unknown)!r} is not one of {', '.join(known)}.", param_hint="--only")
    return ways


def _play(way: str, plan: Plan, tune: bool) -> Outcome:
    from bench.router import competitors, trial

    if way in competitors.COMPETITORS:
        return trial.run_competitor(competitors.COMPETITORS[way], plan, _say)
    return trial.run_product(plan, _say, way, tune=tune)


def _scenario(name: str, slots: int, seed: int, cluster_model: str) -> Scenario:
    from bench.router.cost_model import CLUSTER_MODELS
    from bench.router.scenarios import named

    if cluster_model not in CLUSTER_MODELS:
        raise click.BadParameter(
            f"{cluster_model!r} is not one of {', '.join(CLUSTER_MODELS)}.", param_hint="--cluster-model"
        )
    try:
        return named(name, slots, seed, CLUSTER_MODELS[cluster_model])
    except KeyError as error:
        raise click.BadParameter(error.args[0], param_hint="--scenario") from None
