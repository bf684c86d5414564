"""Whatever happens between reader and writer, the answer comes in time, and says what kept the reader."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bench.tiny_models import make_model
from cli.dev.embedded_redis import free_port
from grading.domain.errors import Cancelled, ConfigError, ModelMissing
from tests.support.engines import SMALLER, ask, measured, quiet
from tests.support.remote_prefill import Spoil, alone, link, prefill_process, reading, writing
from workers.machine.engines.base import Cancel, Generation, Request
from workers.machine.engines.remote_prefill import planner, protocol
from workers.machine.engines.remote_prefill import server as serving
from workers.machine.engines.remote_prefill.cache import Layer, Layout
from workers.machine.engines.remote_prefill.protocol import SECRET_VARIABLE, WeightsDiffer
from workers.machine.engines.remote_prefill.server import PrefillModels

SEVERAL_PIECES = "x <- c(1, 2) # " * 30
"""A prompt whose cache takes several pieces of a link."""
LONG = SEVERAL_PIECES * 4
"""One whose reading takes far longer than what a test does meanwhile."""
SEEN = 3000
"""Bytes after greeting and layout, in the middle of the cache."""
CACHE_BYTES = SMALLER.layers * 2 * SMALLER.kv_heads * SMALLER.head_dim * 4
"""What the model keeps of a token: layers, keys and values, heads, numbers of four bytes."""


def asked(model: Path) -> Request:
    return ask(str(model), user=SEVERAL_PIECES, schema={}, max_output_tokens=10)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), shape=SMALLER)


@pytest.fixture(scope="module")
def expected(model: Path) -> str:
    with alone(model) as direct:
        return direct.generate(asked(model), quiet).text


@pytest.fixture(scope="module")
def address(model: Path) -> Iterator[str]:
    """Where a machine reads prompts, for all who leave it as it was."""
    with reading(model) as listens:
        yield listens


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    """Who is late on a busy computer is not taken for a link that stalls."""
    with mock.patch.object(protocol, "STALL_S", 30.0):
        yield


@pytest.fixture
def impatient(patient: None) -> Iterator[None]:
    """A link stalls sooner than it would."""
    with mock.patch.object(protocol, "STALL_S", 1.0):
        yield


def answer(model: Path, address: str, **settings: Any) -> Generation:
    """What comes from a fresh engine, within its deadline."""
    with writing(model, address, **settings) as hybrid:
        return hybrid.generate(asked(model), quiet)


def told(made: Generation) -> str:
    assert made.details["remote_prefill"].strategy == "direct"
    assert str(made.details["remote_prefill"].reason)
    return measured(made.details["remote_prefill"], "fault")


def flipped(at: int) -> Spoil:
    """One bit of the byte at that place."""

    def spoil(data: bytes, passed: int) -> bytes:
        place = at - passed
        if not 0 <= place < len(data):
            return data
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    return spoil


FLIPPED = (0, 20, SEEN, 200_001)
"""In the greeting, the layout, the cache and its end."""


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "at", [*FLIPPED, *(pytest.param(n, marks=pytest.mark.soak) for n in (5, 100, SEEN + 1))]
)
def test_a_flipped_bit_is_found(model: Path, address: str, expected: str, at: int) -> None:
    with link(address, flipped(at)) as bad:
        made = answer(model, bad.address)
    assert made.text == expected
    assert told(made) in ("frame_corrupt", "version_differs", "link_stalled", "not_authentic", "peer_lost")


def test_a_flipped_bit_in_the_cache_is_a_wrong_checksum(model: Path, address: str, expected: str) -> None:
    with link(address, flipped(50_000)) as bad:
        made = answer(model, bad.address)
    assert (made.text, told(made)) == (expected, "frame_corrupt")


def test_another_version_is_refused(model: Path, address: str, expected: str) -> None:
    def newer(data: bytes, passed: int) -> bytes:
        return data if passed else data[:4] + bytes([protocol.VERSION + 1]) + data[5:]

    with link(address, newer) as bad:
        made = answer(model, bad.address)
    assert (made.text, told(made)) == (expected, "version_differs")


def test_a_link_that_is_cut_in_the_middle(model: Path, address: str, expected: str) -> None:
    with link(address, lambda d, passed: d if passed < SEEN else None) as bad:
        made = answer(model, bad.address)
    assert (made.text, told(made)) == (expected, "peer_lost")


@pytest.mark.usefixtures("impatient")
def test_a_link_that_carries_nothing_any_more(model: Path, address: str, expected: str) -> None:
    with link(address) as bad:

        def hold(data: bytes, passed: int) -> bytes:
            if passed > SEEN:
                bad.hold()
            return data

        bad.spoil = hold
        made = answer(model, bad.address)
    assert (made.text, told(made)) == (expected, "link_stalled")


def test_nobody_listens(model: Path, expected: str) -> None:
    made = answer(model, f"127.0.0.1:{free_port()}")
    assert (made.text, told(made)) == (expected, "peer_unreachable")


def test_another_secret_is_refused(model: Path, address: str, expected: str) -> None:
    made = answer(model, address, secret="not what they know")
    assert (made.text, told(made)) == (expected, "not_authentic")


def test_other_weights_are_refused(model: Path, expected: str, tmp_path: Path) -> None:
    with reading(make_model(tmp_path / "other", "qwen3", SMALLER)) as address:
        made = answer(model, address)
    assert (made.text, told(made)) == (expected, "weights_differ")


def why(made: Generation) -> str:
    return str(made.details["remote_prefill"].reason)


def test_the_same_weights_in_another_precision_are_refused_with_what_to_do(
    model: Path, expected: str, tmp_path: Path
) -> None:
    with reading(make_model(tmp_path / "other", shape=SMALLER, dtype="bfloat16")) as address:
        made = answer(model, address)
    assert (made.text, told(made)) == (expected, "weights_differ")
    assert "this machine runs prefill for" in why(made)
    assert "Both sides need the same files: another precision or quantisation is another model" in why(made)
    assert "So prefill ran on the machine that wrote the answer." in why(made)


def test_layers_in_another_precision_are_refused_though_the_files_are_the_same() -> None:
    ours, theirs = (Layout((Layer(2, 32, 32, dtype),)) for dtype in ("bfloat16", "float32"))
    with pytest.raises(WeightsDiffer, match="in float32, this one in bfloat16: give both the same files"):
        ours.check(theirs.wire())


def test_the_cache_of_another_program_is_refused(model: Path, expected: str) -> None:
    with reading(model) as address, mock.patch.object(serving, "FORMAT", "llama.cpp"):
        made = answer(model, address)
    assert (made.text, told(made)) == (expected, "foreign_cache")
    assert "sends KV caches of llama.cpp; this engine supports only those of mlx-lm" in why(made)
    assert "Run `grader prefill` there" in why(made)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", b""], ids=repr)
def test_the_server_of_another_program_is_no_reader(model: Path, expected: str, says: bytes) -> None:
    """One that answers at once, and one that waits for its own protocol, as servers of HTTP do."""
    held = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            held.append(server.accept()[0])
            held[0].sendall(says)

        threading.Thread(target=serve, daemon=True).start()
        made = answer(model, f"127.0.0.1:{server.getsockname()[1]}")
    held[0].close()
    assert (made.text, told(made)) == (expected, "frame_corrupt" if says else "link_stalled")
    assert "does not answer as `grader prefill` does. Check which program runs there" in why(made)


@pytest.mark.parametrize("file", ["model.gguf", "pytorch_model.bin"])
def test_weights_of_another_program_are_not_read(tmp_path: Path, file: str) -> None:
    folder = make_model(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / file)
    (folder / "model.safetensors.index.json").unlink()
    reader = PrefillModels([str(folder)])
    try:
        with pytest.raises(ModelMissing, match=r"llama.cpp \(.gguf\) and PyTorch .* folder of safetensors"):
            reader.load()
    finally:
        reader.close()


def test_a_cache_beyond_the_cap_is_not_begun(model: Path, address: str, expected: str) -> None:
    made = answer(model, address, most_gb=0.0001)
    assert (made.text, told(made)) == (expected, "too_large")


def test_a_reader_that_is_killed(model: Path, expected: str, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with prefill_process(tmp_path, address, [model]) as process:
        first = answer(model, address).details["remote_prefill"]
        assert first is not None
        assert first.strategy == "disaggregated", first

        def kill(data: bytes, passed: int) -> bytes:
            if passed <= SEEN:
                return data
            process.kill()
            return b""  # what it had sent is lost with it

        with link(address, kill) as bad:
            made = answer(model, bad.address)
    assert (made.text, told(made)) == (expected, "peer_lost")


def test_a_writer_that_leaves_is_noticed(model: Path) -> None:
    cancel = Cancel()
    with reading(model) as address, link(address) as slow:

        def leave(data: bytes, passed: int) -> bytes:
            if passed > SEEN:
                cancel.cancel()
            return data

        slow.spoil = leave
        with writing(model, slow.address) as hybrid, pytest.raises(Cancelled):
            hybrid.generate(ask(str(model), user=LONG, schema={}, cancel=cancel), quiet)
        with writing(model, address) as hybrid:  # the reader goes on with others
            made = hybrid.generate(ask(str(model), user="next", schema={}, max_output_tokens=4), quiet)
        assert made.details["remote_prefill"].strategy == "disaggregated"
    until(lambda: not any(thread.name == "prefill" for thread in threading.enumerate()))


def test_a_reader_that_failed_is_left_alone_for_a_while(model: Path, address: str) -> None:
    faults = []
    with (
        link(address, lambda d, passed: d if passed < SEEN else None) as bad,
        writing(model, bad.address) as hybrid,
        mock.patch.object(planner, "FIRST_PAUSE_S", 60.0),
    ):
        for _ in range(3):
            made = hybrid.generate(
                ask(str(model), user=SEVERAL_PIECES, schema={}, max_output_tokens=4), quiet
            )
            faults.append(measured(made.details["remote_prefill"], "fault"))
    assert faults == ["peer_lost", None, None]


def test_nothing_stays_in_memory_after_broken_transfers(model: Path) -> None:
    import mlx.core as mx

    cache = len(SEVERAL_PIECES) * CACHE_BYTES

    def held() -> int:
        gc.collect()
        return mx.get_active_memory()

    with (
        reading(model) as address,
        link(address, lambda d, passed: d if passed < 100_000 else None) as bad,
        writing(model, bad.address, prefix_cache_gb=0.0) as hybrid,
        mock.patch.object(hybrid._learning, "failed"),  # asked again at once
    ):

        def generate(number: int) -> None:
            user = f"{number} {SEVERAL_PIECES}"
            hybrid.generate(ask(str(model), user=user, schema={}, max_output_tokens=2), quiet)

        loaded = held()
        for number in range(8):
            generate(number)
        # what the last steps leave for the next ones may stay, up to four caches; one of each would be eight
        until(lambda: held() < loaded + 5 * cache)


def test_without_a_secret_there_is_no_engine(model: Path) -> None:
    with pytest.raises(ConfigError, match=SECRET_VARIABLE), writing(model, "127.0.0.1:1", secret="short"):
        pass


def until(true: object, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        threading.Event().wait(0.02)
