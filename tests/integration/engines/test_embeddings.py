"""Embeddings by the engines that make them, and what the others say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from grading.config.machines import EngineSettings, Machine, Placement
from grading.domain.errors import (
    BudgetExceeded,
    Cancelled,
    ConfigError,
    EngineGarbled,
    EngineUnreachable,
    JobInvalid,
    ModelMissing,
)
from tests.support.servers.base import ModelServer
from tests.support.servers.instances import embedding, tokens
from tests.support.servers.ollama_server import ollama_server
from tests.support.servers.openai_server import openai_server
from workers.machine.engines import open_engine, open_engines
from workers.machine.engines.base import Cancel, EmbeddingsRefused
from workers.machine.engines.http.embeddings import checked

SERVERS: dict[str, Callable[[], ModelServer]] = {
    "ollama": lambda: ollama_server(("nomic",)),
    "openai": lambda: openai_server(("nomic",)),
}
TEXTS = ("one", "two and three", "one")


@pytest.fixture(params=list(SERVERS))
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[Any, ModelServer]]:
    with SERVERS[request.param]() as server:
        server.behaviour.capabilities = ("embedding",)
        url = server.url if request.param == "ollama" else f"{server.url}/v1"
        with closing(open_engine(request.param, {"url": url})) as engine:
            yield engine, server


def test_each_text_has_its_vector(opened: tuple[Any, ModelServer]) -> None:
    engine, server = opened
    made = engine.embed("nomic", TEXTS, 30, Cancel())
    assert [list(vector) for vector in made.vectors] == [pytest.approx(embedding(text)) for text in TEXTS]
    assert made.tokens == sum(map(tokens, TEXTS))
    server.behaviour.context = 10
    with pytest.raises(JobInvalid):  # nothing is cut
        engine.embed("nomic", ["word " * 100], 30, Cancel())
    server.behaviour.capabilities = ("completion",)
    with pytest.raises(EmbeddingsRefused):
        engine.embed("nomic", TEXTS, 30, Cancel())


def test_faults_have_their_errors(opened: tuple[Any, ModelServer]) -> None:
    engine, server = opened
    cancel = Cancel()
    server.behaviour.seconds = 60.0
    threading.Thread(target=lambda: server.wait_for("requests", 1, 30) and cancel.cancel()).start()
    with pytest.raises(Cancelled):
        engine.embed("nomic", TEXTS, 60, cancel)
    with pytest.raises(BudgetExceeded):
        engine.embed("nomic", TEXTS, 0.2, Cancel())
    assert server.wait_until_idle(30)
    server.behaviour.seconds = 0.0
    with pytest.raises(ModelMissing):
        engine.embed("other", TEXTS, 30, Cancel())
    server.shutdown()
    server.server_close()
    with pytest.raises(EngineUnreachable):
        engine.embed("nomic", TEXTS, 30, Cancel())


def test_a_server_without_the_page_makes_none() -> None:
    with openai_server(flavour="mlx") as server:
        engine: Any = open_engine("openai", {"url": f"{server.url}/v1"})
        with closing(engine), pytest.raises(EmbeddingsRefused):
            engine.embed("tiny", TEXTS, 30, Cancel())


NO_VECTORS: tuple[Any, ...] = (
    [], [[1.0]], [[1.0], []], [[1.0], [1.0, 2.0]], [["a"], [1.0]], [[float("nan")], [1.0]], [[1e39], [1]],
    [None, 1],
)  # fmt: skip


@pytest.mark.parametrize("vectors", NO_VECTORS)
def test_what_are_no_vectors_of_two_texts_is_garbled(vectors: Any) -> None:
    with pytest.raises(EngineGarbled):
        checked(vectors, 2, 0, "The server")


def test_only_engines_that_make_embeddings_are_opened_for_them() -> None:
    stages = {"analysis": Placement(engine="rules")}
    engines = {
        "rules": EngineSettings(embeddings="nomic"),
        "shelf": EngineSettings(kind="openai", url="http://127.0.0.1:9/v1", embeddings="nomic"),
    }
    with pytest.raises(ConfigError, match="the engine rules makes no embeddings"):
        open_engines(Machine(name="one", engines=engines, stages=stages))
    found = open_engines(Machine(name="one", engines={"shelf": engines["shelf"]}, stages=stages))
    assert set(found) == {"rules", "shelf"}
    for engine in found.values():
        engine.close()
