"""A class rehearsed on machines with real model servers: each that this computer has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from bench.model_servers import LlamaCpp, MlxLm, ModelServer, Offer, Ollama, Setup, Vllm, started
from cli.dev.embedded_redis import free_port, start_redis
from grading.store import schema
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from tests.support.factories import COURSE, RUBRIC, document
from tests.support.services import SqliteDatabases
from tests.support.system import Site, site

pytestmark = pytest.mark.soak
SLOTS, RUNS = 2, 20
CONTEXT = 32_768
"""Tokens of a slot: the tiny models need one for each letter."""
VERSION = NewVersion(
    "sales", "Sales", "r", "at_once", "1", rubric=RUBRIC, solution=(document("mean(sales$amount)\n"),)
)
HEAD = """
[server]
port = {port}
[stages.analysis]
max_output_tokens = 8000
[stages.feedback]
max_output_tokens = 300
"""
MACHINE = """
[[machines]]
name = "{name}"
slots = {slots}
[machines.engines.server]
kind = "{kind}"
url = "{url}"
context_tokens = {context}
[machines.stages]
{stage} = {{ engine = "server", model = "{model}" }}
"""


def present() -> list[ModelServer]:
    """llama.cpp and mlx_lm.server, which every test environment has, and the others that are here."""
    roomy = [LlamaCpp(), *(one for one in (Vllm(), Ollama()) if not one.missing())]
    for one in roomy:
        one.context = CONTEXT  # of the weights, too
    return [*roomy, MlxLm()]


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory, sqlite_databases: SqliteDatabases) -> Iterator[Site]:
    folder, config = tmp_path_factory.mktemp("servers"), HEAD.format(port=free_port())
    with ExitStack() as stack:
        redis = stack.enter_context(start_redis(folder / "redis"))
        for server in present():
            weights = server.make_weights(folder / server.name, 0)
            # one slot more than the machine has, for fingerprints
            setup = Setup(weights, free_port(), SLOTS + 1, CONTEXT)
            stack.enter_context(started(server, setup)).await_ready()
            config += MACHINE.format(
                name=server.name.replace(".", "-").replace("_", "-"),
                slots=SLOTS,
                kind=server.kind,
                url=setup.url + ("/v1" if server.kind == "openai" else ""),
                context=CONTEXT,
                stage="analysis" if Offer.SCHEMAS in server.offers else "feedback",
                model=server.model(setup),
            )
        made = stack.enter_context(site(folder, config, sqlite_databases.fresh(schema.upgrade), redis.url))
        for machine in made.config.machines:
            made.parts.start(machine.name, "worker", machine.name)
        with made.store.write() as session:
            versions.import_version(session, COURSE, VERSION)
        made.until_alive(*(machine.name for machine in made.config.machines))
        yield made


def rehearse(made: Site) -> dict[str, Any]:
    """What `grader rehearse` found."""
    made.parts.start("rehearse", "rehearse", f"{COURSE}/sales", "--runs", str(RUNS), "--json")
    made.parts.running.pop("rehearse").wait(1800)
    written = (made.folder / "rehearse.log").read_text(encoding="utf-8")
    found = json.JSONDecoder().raw_decode(written[written.index("{") :])[0]
    assert isinstance(found, dict)
    return found


def test_a_class_is_rehearsed_on_every_server(rehearsed: Site) -> None:
    found = rehearse(rehearsed)
    assert (found["silent"], found["weights"]) == ([], [])
    stages = {one["machine"]: one for one in found["stages"]}
    print(json.dumps(stages, indent=1))
    assert stages.keys() == {machine.name for machine in rehearsed.config.machines}
    for name, one in stages.items():
        assert one["runs"] == RUNS
        assert one["digest"]
        if name == "mlx-lm-server":  # it does not bind answers to schemas, and a random model writes none
            assert one["succeeded"] == 0
            assert "raise max_output_tokens" in one["change"][0]
            continue
        assert one["succeeded"] == RUNS, one["change"]
        assert 1 <= one["together"] <= SLOTS
        assert one["output_tokens_s"] > 0
        assert one["run_s"] > 0
        assert one["change"] == []
