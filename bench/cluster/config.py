"""config.toml of the product for the emulated machines, with every interval divided."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.cluster.cards import STAGES
from bench.cluster.guests import LIMIT_S
from bench.cluster.parts import Servers
from bench.cluster.policies import homes
from bench.cluster.runs import Plan
from cli.dev.embedded_redis import free_port

BUDGET_S = 3600.0
MOST_TOKENS = 8_000
HEAD = """
[checks]
sandbox = "none"
"""
GATEWAY = """
[gateway]
enabled = true
port = {port}
limit_s = {limit:g}
per_token = {guests}
at_once = {guests}
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


@dataclass(frozen=True)
class Wanted:
    """How the product is set up."""

    tune: bool = False
    """Slots are found by measurement."""
    guests: int = 0
    """So many at once by the gateway, which runs only where there are any."""
    port: int = field(default_factory=free_port)
    """The gateway's."""


def config(plan: Plan, servers: Servers, wanted: Wanted) -> str:
    """config.toml for these machines, with every interval divided."""
    made, of = [HEAD], plan.scenario.setting
    if wanted.guests:
        limit = LIMIT_S / plan.factor
        made.append(GATEWAY.format(port=wanted.port, limit=limit, guests=wanted.guests))
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
                least="" if wanted.tune else f"least_slots = {plan.slots}\n",
                joins=2.0 / plan.factor,
                grace=5.0,
                engine=engine,
                url=url if ollama else f"{url}/v1",
                options="\n".join(shown),
                stages="\n".join(stages),
            )
        )
    return "".join(made)
