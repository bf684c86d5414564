"""The one contract of engines, over all of them: without a model, over HTTP as servers differ, in process.

What is particular to one of them: test_ollama.py, test_openai.py, test_mlx_lm_server.py, test_mlx.py,
test_sharded.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from grading.domain.errors import (
    BudgetExceeded,
    Cancelled,
    EngineBrokeOff,
    EngineBusy,
    EngineError,
    EngineGarbled,
    EngineStalled,
    ModelMissing,
)
from tests.support.engines import ENDLESS, PATIENT, SHORT, Heard, ask, graded_job, mlx_lm_server, quiet
from tests.support.servers.base import ModelServer
from tests.support.servers.ollama_server import ollama_server
from tests.support.servers.openai_server import openai_server
from tests.support.sharded import ranks
from workers.machine.engines import Engine, Request, open_engine
from workers.machine.engines.base import Cancel, ReportsDigest, ReportsMetrics
from workers.machine.stages.analysis import STAGE as ANALYSIS

PLAYED = ("ollama", "openai", "openai-mlx", "openai-llama", "openai-lmstudio", "openai-vllm")
"""Protocol servers in this process."""
REAL = pytest.param("mlx_lm.server", marks=pytest.mark.soak)
"""The server that openai-mlx plays; test_mlx_lm_server.py has what is its own."""
MODELS = (*PLAYED, "mlx", "sharded", REAL)
ENGINES = ("rules", "instant", *MODELS)
OWN = ("mlx", "sharded")
"""Those that run models themselves; one of each is shared by all tests here."""
LEVEL = {
    "type": "object",
    "properties": {"level": {"type": "integer", "minimum": 0, "maximum": 4}},
    "required": ["level"],
    "additionalProperties": False,
}
"""A schema with short answers, for models that take a while a token."""
UNBOUND = ("openai-mlx", "mlx_lm.server")
ENDS = ("instant", *MODELS)
"""Those whose work takes long enough to be ended."""


@dataclass
class Case:
    """An engine, a request it answers, and an engine with a request that would take it far too long."""

    engine: Engine
    ask: Request
    slow: Callable[[], tuple[Engine, Request]]
    server: ModelServer | None = None

    def counter(self, name: str) -> float:
        """What the engine counts."""
        assert isinstance(self.engine, ReportsMetrics)
        return self.engine.counters()[name]


@contextmanager
def played(kind: str) -> Iterator[Case]:
    """An HTTP engine on a protocol server of its own."""
    name, _, flavour = kind.partition("-")
    with openai_server(flavour=flavour) if name == "openai" else ollama_server() as server:
        url = f"{server.url}/v1" if name == "openai" else server.url
        engine = open_engine(name, {"url": url, "busy_timeout": 0.3})

        def slow() -> tuple[Engine, Request]:
            engine.generate(ask(), quiet)  # what is found out at a first use is known then
            server.behaviour.seconds = 60.0
            return engine, ask()

        yield Case(engine, ask(), slow, server)


@pytest.fixture(scope="module")
def real_server(tiny: Path) -> Iterator[str]:
    """A real mlx_lm.server for the module."""
    with mlx_lm_server(tiny) as url:
        yield url


@pytest.fixture(scope="module")
def sharded(qwen2: Path) -> Iterator[Engine]:
    """An engine of two ranks with a tiny model loaded."""
    with ranks(2) as engine:
        engine.load(str(qwen2))
        yield engine


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Case]]:
    """Opens the case of a kind of engine; closed after the test."""
    with ExitStack() as stack:

        def case(kind: str) -> Case:
            if kind in PLAYED:
                return stack.enter_context(played(kind))
            if kind == "rules":
                job = graded_job()
                short = ask(job=job, schema=ANALYSIS.schema(job))
                return Case(rules := open_engine("rules", {}), short, lambda: (rules, short))
            if kind == "instant":
                late = open_engine("instant", {"seconds": 60})
                return Case(open_engine("instant", {}), ask(), lambda: (late, ask()))
            tiny = str(request.getfixturevalue("qwen2" if kind == "sharded" else "tiny"))
            short = ask(tiny, schema=LEVEL, max_output_tokens=24)
            long = ask(tiny, schema=ENDLESS if kind in OWN else {}, max_output_tokens=3000, deadline_s=90)
            if kind in OWN:
                return Case(shared := request.getfixturevalue(kind), short, lambda: (shared, long))
            engine = open_engine("openai", {"url": f"{request.getfixturevalue('real_server')}/v1"})
            stack.callback(engine.close)
            engine.generate(replace(long, schema={}, max_output_tokens=1), quiet)  # loads the model
            return Case(engine, short, lambda: (engine, long))

        yield case


def bound(sampling: Mapping[str, Any]) -> bool:
    """Whether the answer says that it was bound to its schema, or needed no binding."""
    return str(sampling.get("format", "json_schema")).startswith("json_schema")


def without(schema: Any) -> Any:
    """The schema of an engine that has no confidence in its levels."""
    if isinstance(schema, dict):
        return {name: without(part) for name, part in schema.items() if name != "confidence"}
    return [without(part) for part in schema if part != "confidence"] if isinstance(schema, list) else schema


@pytest.mark.parametrize("kind", ENGINES)
def test_answers_follow_the_schema_or_are_handed_on_for_repair(
    opened: Callable[[str], Case], kind: str
) -> None:
    case = opened(kind)
    answer = case.engine.generate(case.ask, quiet)
    if bound(answer.sampling):
        schema = case.ask.schema if kind != "rules" else without(case.ask.schema)
        jsonschema.validate(json.loads(answer.text), schema)
    else:
        assert kind in UNBOUND
        assert answer.sampling["format"] == "none: the server ignores json_schema"
        assert answer.text.strip()


@pytest.mark.parametrize("kind", ENGINES)
def test_counts_times_and_phases(opened: Callable[[str], Case], kind: str) -> None:
    case, heard = opened(kind), Heard()
    answer = case.engine.generate(case.ask, heard)
    assert heard.tokens == sorted(heard.tokens)
    assert set(heard.phases) <= {"queued", "loading", "reading", "generating"}
    assert heard.phases[-1] == "generating"
    assert heard.phases.count("generating") == 1  # nothing else comes after it
    assert not any(heard.drafts)
    assert answer.first_token_s is None or 0 <= answer.first_token_s <= answer.seconds
    assert not answer.truncated or kind == "mlx_lm.server"
    if case.engine.uses_model:
        # progress counts pieces, and this server holds back bytes that are no whole character yet
        told = range(1, answer.tokens.output + 1) if kind == "mlx_lm.server" else [answer.tokens.output]
        assert heard.tokens[-1] in told
        assert answer.tokens.output > 0 < answer.tokens.prompt
        assert answer.first_token_s is not None


@pytest.mark.parametrize("kind", MODELS)
def test_engines_count_by_the_names_they_declare(opened: Callable[[str], Case], kind: str) -> None:
    case = opened(kind)
    assert isinstance(case.engine, ReportsMetrics)
    before = case.engine.counters()
    answer = case.engine.generate(case.ask, quiet)
    after = case.engine.counters()
    assert set(after) <= set(case.engine.metrics)
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert (grown["requests"], after["running"]) == (1, 0)
    assert grown["prompt_tokens"] == answer.tokens.prompt
    assert grown["output_tokens"] == answer.tokens.output
    assert grown.get("cached_tokens", 0) == answer.tokens.cached
    assert "cached_tokens" in after or kind not in OWN
    assert "cached_tokens" not in after or kind != "ollama"  # it does not tell


@pytest.mark.parametrize("kind", MODELS)
def test_drafts_come_only_when_asked_for(opened: Callable[[str], Case], kind: str) -> None:
    case, heard = opened(kind), Heard()
    wanted = replace(case.ask, job=case.ask.job.model_copy(update={"draft": True}))
    answer = case.engine.generate(wanted, heard)
    assert heard.drafts[-1] == answer.text
    assert all(answer.text.startswith(draft) for draft in heard.drafts)


@pytest.mark.parametrize("kind", ENGINES)
def test_four_threads_at_once_get_their_own_answers(opened: Callable[[str], Case], kind: str) -> None:
    case = opened(kind)
    asked = [replace(case.ask, user=f"+ 1| the work of student number {n}") for n in range(4)]
    alone = [case.engine.generate(request, quiet).text for request in asked]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda request: case.engine.generate(request, quiet).text, asked))
    assert together == alone
    if kind in ("ollama", "openai", "openai-llama"):
        assert len(set(alone)) == 4


@pytest.mark.parametrize("kind", ENDS)
def test_a_deadline_is_kept(opened: Callable[[str], Case], kind: str) -> None:
    case = opened(kind)
    engine, slow = case.slow()
    begun = time.monotonic()
    seen = case.server.stats.requests if case.server else 0
    with pytest.raises(BudgetExceeded, match=r"0\.3 s"):
        engine.generate(replace(slow, deadline_s=0.3), quiet)
    assert time.monotonic() - begun < 30
    with pytest.raises(BudgetExceeded):
        engine.generate(replace(slow, deadline_s=0.0), quiet)
    # where it is late, the time is over before the server is asked
    freed(case, case.server.stats.requests - seen if case.server else 0)


def freed(case: Case, left: int) -> None:
    """Nothing goes on for a generation that was ended: by the engine's own count, and by the server's."""
    if isinstance(case.engine, ReportsMetrics):
        deadline = time.monotonic() + 60
        while case.counter("running") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert case.counter("running") == 0
    if case.server is not None:
        assert case.server.wait_for("disconnects", left)
        assert case.server.wait_until_idle()


@pytest.mark.parametrize("kind", ENGINES)
def test_what_nobody_waits_for_is_not_begun(opened: Callable[[str], Case], kind: str) -> None:
    case, cancel = opened(kind), Cancel()
    cancel.cancel()
    seen = case.server.stats.requests if case.server else 0
    with pytest.raises(Cancelled):
        case.engine.generate(replace(case.ask, cancel=cancel), quiet)
    assert case.server is None or case.server.stats.requests == seen


@pytest.mark.parametrize("kind", ENDS)
def test_a_cancel_ends_the_generation_and_frees_its_slot(opened: Callable[[str], Case], kind: str) -> None:
    case = opened(kind)
    engine, slow = case.slow()
    before = engine.counters()["cancelled"] if isinstance(engine, ReportsMetrics) else 0
    cancel = Cancel()
    written = 0

    def say() -> None:
        nonlocal written
        written = case.server.stats.written if case.server else 0
        cancel.cancel()

    with ThreadPoolExecutor(1) as pool:
        if kind == "instant":  # which says nothing before it is done
            pool.submit(lambda: time.sleep(0.1) or cancel.cancel())
        if case.server is not None:
            case.server.behaviour.seconds = 15.0  # so that a first token comes soon
        with pytest.raises(Cancelled):
            engine.generate(replace(slow, cancel=cancel), Heard(say))
    freed(case, 1)
    if case.server is not None:
        assert case.server.stats.written <= written + 1  # within one chunk
    if isinstance(engine, ReportsMetrics):
        assert engine.counters()["cancelled"] == before + 1


@pytest.mark.parametrize("kind", MODELS)
def test_an_unknown_model_is_missing_and_the_next_one_answers(
    opened: Callable[[str], Case], kind: str
) -> None:
    case = opened(kind)
    with pytest.raises(ModelMissing, match="nowhere/nothing"):
        case.engine.generate(replace(case.ask, model="/nowhere/nothing"), quiet)
    assert case.engine.generate(case.ask, quiet).text


@pytest.mark.parametrize("kind", MODELS)
def test_a_digest_is_that_of_the_answers(
    opened: Callable[[str], Case], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "workers.machine.engines.openai.server.LOOK_S", 60.0
    )  # a late server is no unknown one
    case = opened(kind)
    assert isinstance(case.engine, ReportsDigest)
    digest = case.engine.digest(case.ask.model, 60.0)
    of_answer = case.engine.generate(case.ask, quiet).digest
    if kind in ("ollama", *OWN):
        assert digest.startswith("sha256:")
        assert of_answer == digest
    else:  # who asked for the answer looks at what the model does then
        assert digest.startswith("behaviour:")
        assert of_answer == ""


FAULTS: dict[str, type[EngineError]] = {
    "500": EngineError,
    "503": EngineBusy,
    "404": ModelMissing,
    "stall": EngineStalled,
    "error_midstream": EngineBrokeOff,
    "garbage": EngineGarbled,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", PLAYED)
def test_a_fault_has_its_error_and_does_not_last(kind: str, fault: str) -> None:
    with played(kind) as case:
        assert case.server is not None
        url = f"{case.server.url}/v1" if kind != "ollama" else case.server.url
        limits = SHORT if fault == "stall" else PATIENT
        engine = open_engine(kind.partition("-")[0], {"url": url, **limits})
        case.server.behaviour.fault = fault
        with pytest.raises(EngineError) as caught:
            engine.generate(ask(), quiet)
        assert type(caught.value) is FAULTS[fault]
        assert url in caught.value.message
        assert caught.value.message.endswith((".", "tiny"))  # a sentence, or the command that mends it
        case.server.behaviour.fault = ""
        if fault == "stall":
            engine = open_engine(kind.partition("-")[0], {"url": url, **PATIENT})
        assert engine.generate(ask(), quiet).text
        assert case.server.wait_until_idle()


# --- what is closed, after all others, as some engines are shared ---------------------------------------


@pytest.mark.parametrize("kind", ENDS)
def test_closing_ends_what_runs_and_a_closed_engine_says_so(opened: Callable[[str], Case], kind: str) -> None:
    case = opened(kind)
    engine, slow = case.slow()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine.generate, slow, quiet)
        while isinstance(engine, ReportsMetrics) and not engine.counters()["running"] and not running.done():
            time.sleep(0.01)
        engine.close()
        with pytest.raises(EngineError, match="was closed"):
            running.result(60)
    case.engine.close()
    with pytest.raises(EngineError, match="was closed"):
        case.engine.generate(case.ask, quiet)


def test_a_closed_engine_whose_work_is_short_says_so(opened: Callable[[str], Case]) -> None:
    case = opened("rules")
    case.engine.close()
    with pytest.raises(EngineError, match="was closed"):
        case.engine.generate(case.ask, quiet)
