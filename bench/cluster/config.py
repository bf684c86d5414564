"""config.toml of the product for the emulated machines, with every interval divided."""

from __future__ import annotations

from bench.cluster.cards import STAGES
from bench.cluster.parts import Servers
from bench.cluster.policies import homes
from bench.cluster.runs import Plan

BUDGET_S = 3600.0
MOST_TOKENS = 8_000
HEAD = """
[checks]
sandbox = "none"
"""
STAGE = """
[stages.{stage}]
budget_s = {budget:g}
max_output_tokens = {most}
"""
MACHINE = """
[[machines]]
name = "{name}"
role = "{role}"
slots = {slots}
{least}joins_after_s = {joins:g}
grace_s = {grace:g}
[machines.engines.{engine}]
url = "{url}"
[machines.engines.{engine}.options]
{options}
[machines.stages]
{stages}
"""


def config(plan: Plan, servers: Servers, *, tune: bool) -> str:
    """config.toml for these machines, with every interval divided.

    With `tune` machines find their slots by measurement.
    """
    made, of = [HEAD], plan.scenario.setting
    for stage in STAGES:
        made.append(STAGE.format(stage=stage, budget=BUDGET_S / plan.factor, most=MOST_TOKENS))
    for name, url in servers.urls.items():
        ollama = name.startswith("dgx")
        engine = "ollama" if ollama else "openai"
        home = homes(of)[name]
        order = [home, *(stage for stage in STAGES if stage != home)]
        stages = [f'{s} = {{ engine = "{engine}", model = "{of.works[s].model.name}" }}' for s in order]
        options = {"chunk_timeout": 60.0, "load_timeout": 600.0, "busy_timeout": 60.0}
        shown = [f"{key} = {value / plan.factor:g}" for key, value in options.items()]
        shown.append("num_ctx = 32768" if ollama else 'schema = "json_schema"')
        made.append(
            MACHINE.format(
                name=name,
                role="primary" if name.endswith("1") else "spare",
                slots=plan.slots,
                least="" if tune else f"least_slots = {plan.slots}\n",
                joins=2.0 / plan.factor,
                grace=5.0,
                engine=engine,
                url=url if ollama else f"{url}/v1",
                options="\n".join(shown),
                stages="\n".join(stages),
            )
        )
    return "".join(made)
