"""What tests of hybrid inference share: a machine that reads prompts, engines beside it, and bad links."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from workers.machine.engines.mlx.decode_loop import Runner
from workers.machine.engines.mlx.engine import MlxEngine
from workers.machine.engines.remote_prefill.engine import HybridEngine
from workers.machine.engines.remote_prefill.protocol import SECRET_VARIABLE
from workers.machine.engines.remote_prefill.server import PrefillModels, PrefillServer

SECRET = "known on both sides"
STEP = 128


@contextmanager
def reading(model: Path, step: int = STEP, **settings: Any) -> Iterator[str]:
    """The address of a machine that reads prompts with this model."""
    reader = PrefillModels([str(model)], step=step)
    try:
        reader.load()
        serving = PrefillServer(reader, SECRET.encode(), ("127.0.0.1", 0), **settings)
        try:
            yield f"127.0.0.1:{serving.address[1]}"
        finally:
            serving.close()
    finally:
        reader.close()


@contextmanager
def writing(
    model: Path | None, address: str, secret: str = SECRET, **settings: Any
) -> Iterator[HybridEngine]:
    """An engine that has its prompts read there, with this model loaded."""
    with mock.patch.dict(os.environ, {SECRET_VARIABLE: secret}):
        engine = HybridEngine(
            **{"readers": {"spark": address}, "strategy": "disaggregated", "slots": 8, **settings}
        )
    try:
        if model is not None:
            engine.load(str(model))
        yield engine
    finally:
        engine.close()


@contextmanager
def alone(model: Path, **settings: Any) -> Iterator[MlxEngine]:
    """An engine that reads its own prompts."""
    engine = MlxEngine(**{"slots": 8, **settings})
    try:
        engine.load(str(model))
        yield engine
    finally:
        engine.close()


@contextmanager
def together(count: int) -> Iterator[None]:
    """What comes is held until so many are there, and begins at the same step, in the order of its tokens.

    So the prompts that are read together and the answers that are written together are the same each time.
    """
    with (
        _gathered(Runner, count, lambda ticket: ticket.prompt.ids, lambda runner: runner),
        _gathered(PrefillModels, count, lambda prompt: prompt.ids, lambda reader: reader._runner),
    ):
        yield


@contextmanager
def _gathered(
    kind: type, count: int, tokens: Callable[[Any], list[int]], thread: Callable[[Any], Runner]
) -> Iterator[None]:
    """`submit` of a kind, which has the mlx thread wait until all have come."""
    submit: Any = kind.submit  # type: ignore[attr-defined]
    come: list[tuple[Any, ...]] = []
    lock = threading.Lock()

    def gather(to: Any, *given: Any) -> None:
        with lock:
            come.append(given)
            if len(come) < count:
                return
            begin = threading.Event()
            thread(to).call(begin.wait)
            for one in sorted(come, key=lambda one: tokens(one[-1])):
                submit(to, *one)
            come.clear()
            begin.set()

    with mock.patch.object(kind, "submit", gather):
        yield


@contextmanager
def prefill_process(
    folder: Path, address: str, models: Sequence[Path], prefix: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """`grader prefill` as a process of its own, from when it listens on. `prefix` begins its command."""
    config, names = folder / "config.toml", ", ".join(f'"{model}"' for model in models)
    rules = '{ engine = "rules", model = "rules" }'
    config.write_text(
        f'[[machines]]\nname = "spark"\nstages = {{ analysis = {rules}, feedback = {rules} }}\n'
        f'prefill = {{ listen = "{address}", models = [{names}], step = {STEP} }}\n'
    )
    command = [*prefix, sys.executable, "-m", "cli", "--config", str(config), "prefill", "spark"]
    environment = {**os.environ, SECRET_VARIABLE: SECRET}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert any(b"prefill_listens" in line for line in process.stdout), "it ended"
            yield process
        finally:
            process.kill()


def prefilled(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Tokens of prompts that a writing side read itself."""
    return sum(
        sign * (counters["prompt_tokens"] - counters["cached_tokens"])
        for sign, counters in ((1, after), (-1, before))
    )


Spoil = Callable[[bytes, int], bytes | None]
"""Gets bytes of the reading side and how many came before; gives what goes on, or None to end the link."""


class Link:
    """A link between writer and reader that a test can spoil. Listens at `address`."""

    def __init__(self, to: str, spoil: Spoil = lambda data, _: data) -> None:
        self.spoil = spoil
        self._to = to
        self._held = threading.Event()
        self._held.set()
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        """Let nothing through any more, and say nothing."""
        self._held.clear()

    def close(self) -> None:
        """End it, with all connections."""
        self._held.set()
        for one in [self._server, *self._sockets]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                writer, _ = self._server.accept()
            except OSError:
                return
            host, _, port = self._to.rpartition(":")
            reader = socket.create_connection((host, int(port)))
            self._sockets += [writer, reader]
            threading.Thread(target=self._carry, args=(writer, reader, None), daemon=True).start()
            threading.Thread(target=self._carry, args=(reader, writer, self.spoil), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket, spoil: Spoil | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self._held.wait()
                changed = spoil(data, passed) if spoil else data
                passed += len(data)
                if changed is None:
                    break
                other.sendall(changed)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def link(to: str, spoil: Spoil = lambda data, _: data) -> Iterator[Link]:
    """A link to an address."""
    made = Link(to, spoil)
    try:
        yield made
    finally:
        made.close()
