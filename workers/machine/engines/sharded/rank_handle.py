"""A rank as the worker sees it: a process, what it is told and what it says.

A rank on another computer is the ssh that runs it there: its standard input and output reach that far, so no
further port is open. They are the lifeline, too: a rank ends when its standard input does.
"""

from __future__ import annotations

import logging
import os
import queue
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from grading.domain.errors import EngineError, EngineUnreachable
from workers.machine.engines.sharded.protocol import FromRank, from_rank

log = logging.getLogger(__name__)
PROGRAM = ("-m", "workers.machine.engines.sharded.rank")
END_S = 3.0
"""For a rank to end by itself when its standard input does."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
EndOfRank = EngineError
"""Why nothing more comes from a rank."""


def here(hosts: Sequence[str]) -> list[bool]:
    """Which ranks are processes of this computer: those with the address of rank 0, which always is."""
    addresses = [host.rpartition(":")[0] for host in hosts]
    return [address == addresses[0] for address in addresses]


def command(hosts: Sequence[str], rank: int, remote: str) -> list[str]:
    """What starts a rank; `remote` is for those elsewhere, with `{host}` for the rank's address."""
    if here(hosts)[rank]:
        return [sys.executable, *PROGRAM]
    return shlex.split(remote.replace("{host}", hosts[rank].rpartition(":")[0]))


def environment(hosts: Sequence[str]) -> Mapping[str, str]:
    """That of ranks here, which share the cores of this computer; what is set already stays."""
    threads = str(max(1, (os.cpu_count() or 1) // sum(here(hosts))))
    return {**dict.fromkeys(THREADS, threads), **os.environ}


class RankProcess:
    """One rank. `hear` is called on a thread of its own with each word, and with why there are no more.

    Raises EngineUnreachable when the command cannot be run.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        environ: Mapping[str, str],
        hear: Callable[[FromRank | EndOfRank], None],
    ) -> None:
        self._name = name
        self._hear = hear
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        try:
            self._process = subprocess.Popen(
                words,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # signals for the worker are not for its ranks
            )
        except OSError as error:
            raise EngineUnreachable(f"{name} cannot be started: {error}.") from error
        for body in (self._write, self._read):
            threading.Thread(target=body, name="sharded-link", daemon=True).start()

    def say(self, said: bytes) -> None:
        """Tell the rank a line. Never waits."""
        self._lines.put(said)

    def let_go(self) -> None:
        """No more lines; the rank ends with that."""
        self._lines.put(None)

    def end(self) -> None:
        """See that the process has ended, by force after END_S."""
        self.let_go()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            log.warning("%s did not exit, killing it", self._name)
            self._process.kill()
            self._process.wait()

    def _write(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError), self._process.stdin as pipe:  # its end is told by `_read`
            while (said := self._lines.get()) is not None:
                pipe.write(said)
                pipe.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            for said in pipe:
                try:
                    self._hear(from_rank(said))
                except EngineError as error:
                    self._hear(error)
                    break
        self._hear(EngineUnreachable(f"{self._name} ended (status {self._status()})."))

    def _status(self) -> int | str:
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            return "unknown: it closed its output and goes on"
