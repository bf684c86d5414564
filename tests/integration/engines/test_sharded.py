"""One model over several ranks: what it writes is what one process writes, and what is lost comes back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bench.router.processes import process_cpu_s
from bench.tiny_models import make_model
from grading.domain.errors import BudgetExceeded, Cancelled, EngineError, EngineUnreachable, ModelMissing
from grading.scheduling.crossings import LEAST_GAIN
from tests.support.engines import ENDLESS, HEADS, SYSTEM, Heard, ask, parsed, quiet
from tests.support.sharded import addresses, gone, group, kill, ranks
from tests.support.strategies import compared, expect_figures
from tests.support.system import until
from workers.machine.engines import Request
from workers.machine.engines.base import Cancel
from workers.machine.engines.mlx.engine import MlxEngine
from workers.machine.engines.sharded.engine import ShardedEngine

pytestmark = pytest.mark.usefixtures("one_thread_each")


@pytest.fixture(scope="module")
def one_thread_each() -> Iterator[None]:
    """Ranks share two cores."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            patch.setenv(name, "1")
        yield


@pytest.fixture(scope="module")
def direct(qwen2: Path) -> Iterator[MlxEngine]:
    """The same model in one process."""
    engine = MlxEngine(slots=4)
    engine.load(str(qwen2))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def pool(qwen2: Path, one_thread_each: None) -> Iterator[ShardedEngine]:
    """The model over two ranks; more of them than cores would mostly wait for each other."""
    with ranks(2) as engine:
        engine.load(str(qwen2))
        yield engine


def free(model: str | Path, **changes: object) -> Request:
    """A request without a schema, for few tokens."""
    return replace(ask(str(model), schema={}, max_output_tokens=12, deadline_s=60.0), **changes)  # type: ignore[arg-type]


def test_three_ranks_write_what_one_process_writes_until_one_is_lost(
    qwen2: Path, one_thread_each: None, direct: MlxEngine
) -> None:
    endless = free(qwen2, schema=ENDLESS, max_output_tokens=3000, temperature=1.0, seed=3)
    lost: list[tuple[int, ...]] = []
    with ranks(3) as three:

        def lose() -> None:
            lost.append(lost[0] if lost else kill(three, 1))

        for request in (free(qwen2), free(qwen2, user="+ 1| another work", max_output_tokens=20)):
            written, alone = three.generate(request, quiet), direct.generate(request, quiet)
            assert written.text == alone.text
            assert written.tokens.output == alone.tokens.output > 0
            assert written.digest == alone.digest
        assert group(three).mode == "pipeline"
        assert len(group(three).pids) == 3
        with pytest.raises(EngineUnreachable, match=r"Rank 1 \(127\.0\.0\.1:\d+\) ended"):
            three.generate(endless, Heard(lose))
    gone(lost[0])


def test_bound_to_a_schema_they_write_the_same(pool: ShardedEngine, direct: MlxEngine, qwen2: Path) -> None:
    request = ask(str(qwen2), max_output_tokens=60, deadline_s=60.0)
    alone, shared = direct.generate(request, quiet), pool.generate(request, quiet)
    assert shared.text == alone.text
    parsed(shared.text)
    assert (shared.closed, shared.truncated) == (alone.closed, alone.truncated)
    assert shared.sampling == alone.sampling


def test_two_at_once_with_one_prefix_are_written_as_alone(
    pool: ShardedEngine, direct: MlxEngine, qwen2: Path
) -> None:
    asked = [free(qwen2, system=f"{SYSTEM} Be brief.", user=f"+ 1| work {n}") for n in range(3)]
    alone = [direct.generate(request, quiet).text for request in asked]
    before = pool.counters()
    with ThreadPoolExecutor(3) as threads:
        together = list(threads.map(lambda request: pool.generate(request, quiet), asked))
    assert [answer.text for answer in together] == alone
    until(lambda: not pool.counters()["running"], 30, "nothing runs")
    after = pool.counters()
    assert after["prefix_hits"] - before["prefix_hits"] == 2
    assert after["decode_steps"] - before["decode_steps"] < 3 * 12  # in one batch
    assert after["cache_bytes"] > before["cache_bytes"]
    assert (after["running"], after["waiting"]) == (0, 0)


def test_ranks_are_measured_beside_one_process(pool: ShardedEngine, qwen2: Path) -> None:
    found, result = compared(pool, qwen2)
    expect_figures(found, (1, False), (1, True), (1, False), (1, True), (2, True))
    assert (found["strategy"], found["pays_by"], found["computers"]) == ("sharded", "answer", 1)
    advice = result.advice
    assert advice is not None
    assert advice.full is not None
    wins = advice.tokens is not None and advice.tokens <= 60 and advice.full >= 1
    assert advice.on == (wins and (advice.gain or 0) >= LEAST_GAIN)
    assert f"A full batch writes {advice.full:.2f} times the tokens of one computer." in result.sentence
    with (
        pytest.raises(EngineError, match="have no room"),
        pool.comparison(str(qwen2), 30.0, lambda _size: False),
    ):
        pass


def test_chance_is_the_same_on_all_ranks(pool: ShardedEngine, direct: MlxEngine, qwen2: Path) -> None:
    seeded = free(qwen2, temperature=1.0, seed=7)
    assert pool.generate(seeded, quiet).text == direct.generate(seeded, quiet).text
    assert pool.generate(free(qwen2, temperature=1.0), quiet).text  # or the ranks would have come apart


def test_a_cancel_and_a_deadline_free_the_slots(pool: ShardedEngine, qwen2: Path) -> None:
    endless = free(qwen2, schema=ENDLESS, max_output_tokens=3000, temperature=1.0, seed=3)
    before, cancel = pool.counters()["cancelled"], Cancel()
    heard = Heard(cancel.cancel)
    with pytest.raises(Cancelled):
        pool.generate(replace(endless, cancel=cancel), heard)
    assert heard.phases[-2:] == ["reading", "generating"]  # before them "queued", where a rank is late
    with pytest.raises(BudgetExceeded, match=r"0\.5 s"):
        pool.generate(replace(endless, deadline_s=0.5), quiet)
    until(lambda: pool.counters()["cancelled"] == before + 2, 30, "both are ended")
    until(lambda: not pool.counters()["running"], 30, "nothing runs")


def test_a_loss_that_nobody_met_is_told_and_all_come_back(
    pool: ShardedEngine, direct: MlxEngine, qwen2: Path
) -> None:
    """Who comes next is told, so that the machine takes no more work until the ranks are back."""
    lost = kill(pool, 1)
    gone(lost)
    request = free(qwen2)
    with pytest.raises(EngineUnreachable, match="Rank 1"):
        pool.generate(request, quiet)
    heard = Heard()
    assert pool.generate(request, heard).text == direct.generate(request, quiet).text
    assert heard.phases[0] == "loading"
    assert not set(group(pool).pids) & set(lost)


def test_ranks_that_have_nothing_to_do_sleep(pool: ShardedEngine) -> None:
    pids = group(pool).pids
    before = [process_cpu_s(pid) for pid in pids]
    threading.Event().wait(1.0)
    assert (
        sum(map(process_cpu_s, pids)) - sum(before) < 0.5
    )  # waiting for each other, they would use all of it


def test_other_weights_on_one_rank_are_refused(tmp_path: Path, root: Path) -> None:
    for name in ("here", "there"):
        make_model(tmp_path / name / "model", "qwen2", HEADS)
    weights = tmp_path / "there" / "model" / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    program = f"{sys.executable} -m workers.machine.engines.sharded.rank"
    elsewhere = f"env PYTHONPATH={root} sh -c 'cd {tmp_path}/there && exec {program}'"
    with (
        pytest.MonkeyPatch.context() as patch,
        ranks(hosts=addresses(2, "127.0.0.2"), remote=elsewhere) as engine,
    ):
        patch.setenv("PYTHONPATH", str(root))
        patch.chdir(tmp_path / "here")
        with pytest.raises(ModelMissing, match="do not have the same files of the model") as caught:
            engine.load("model")
        assert "Rank 0" in caught.value.message
        assert "Rank 2 (127.0.0.2" in caught.value.message


def test_split_layers_write_the_same(tmp_path: Path) -> None:
    model = str(make_model(tmp_path, "llama", HEADS))
    request = free(model, max_output_tokens=4, user="+ 1| x", system="Grade.")
    direct = MlxEngine(slots=1)
    expected = direct.generate(request, quiet).text
    direct.close()
    with ranks(2, mode="tensor") as engine:
        assert engine.generate(request, quiet).text == expected
        assert group(engine).mode == "tensor"


@pytest.mark.soak  # tests/unit/engines/test_sharded.py has the same without processes
def test_a_model_that_cannot_be_shared_out_is_refused(tmp_path: Path) -> None:
    model = str(make_model(tmp_path, "gemma3"))
    with ranks(2) as engine, pytest.raises(ModelMissing, match=r"gemma3_text.* cannot be shared out"):
        engine.load(model)
