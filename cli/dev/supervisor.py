"""Runs processes and starts again the ones that die."""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger(__name__)
LIFELINE = "GRADER_LIFELINE"
"""Tells a part to end when its standard input does."""
STEADY_S = 5.0
"""A process that lived this long is started again at once; others wait longer each time."""
LONGEST_WAIT_S = 10.0
STOP_S = 20.0
GRACE_S = 12.0
"""What workers are given to finish: when everything ends, nobody waits for minutes."""


@dataclass(frozen=True)
class Part:
    """One process of the system."""

    name: str
    argv: tuple[str, ...]


@dataclass
class Supervisor:
    """Keeps parts running, each in its own process group; their pids are in `folder`/processes.json."""

    folder: Path
    environ: Mapping[str, str]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _ended: queue.Queue[tuple[Part, float] | None] = field(default_factory=queue.Queue)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _waits: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, part: Part) -> None:
        """Start a part and watch it."""
        with self._lock:
            if self._stopping.is_set():
                return
            with (self.folder / f"{part.name}.log").open("ab") as output:
                process = subprocess.Popen(
                    part.argv,
                    env={**self.environ, LIFELINE: "stdin"},
                    stdin=subprocess.PIPE,  # a lifeline: it breaks when this process dies, however
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            self.running[part.name] = process
            self._write_pids()
        threading.Thread(target=self._watch, args=(part, process), daemon=True).start()

    def _watch(self, part: Part, process: subprocess.Popen[bytes]) -> None:
        started = time.monotonic()
        code = process.wait()
        if process.stdin is not None:
            process.stdin.close()
        if not self._stopping.is_set():
            log.warning("%s exited with status %s, restarting it", part.name, code)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # orphans of a killed launcher would go on working
        self._ended.put((part, time.monotonic() - started))

    def keep_running(self) -> None:
        """Restart what dies, until `stop`."""
        while (ended := self._ended.get()) is not None:
            part, lived = ended
            if self._stopping.wait(self._wait_before(part, lived)):
                break
            try:
                self.start(part)
            except OSError as error:  # no memory, no disk, no more processes: later there may be
                log.warning("%s could not be started, retrying: %s", part.name, error)
                self._ended.put((part, 0.0))

    def _wait_before(self, part: Part, lived: float) -> float:
        """Seconds to wait before a restart: none after a steady life, twice as long each time otherwise."""
        if lived > STEADY_S:
            self._waits.pop(part.name, None)
            return 0.0
        self._waits[part.name] = min(self._waits.get(part.name, 0.25) * 2, LONGEST_WAIT_S)
        return self._waits[part.name]

    def stop(self) -> None:
        """End all parts: politely, then by force after 20 s."""
        self._stopping.set()
        self._ended.put(None)
        with self._lock:
            processes = list(self.running.values())
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in processes:
                if process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, number)
            deadline = time.monotonic() + STOP_S
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
        (self.folder / "processes.json").unlink(missing_ok=True)

    def _write_pids(self) -> None:
        pids = {name: process.pid for name, process in self.running.items()}
        temporary = self.folder / "processes.json.new"
        temporary.write_text(json.dumps(pids, indent=1), encoding="ascii")
        temporary.replace(self.folder / "processes.json")


def processes(folder: Path) -> dict[str, int]:
    """The pids (and process groups) of a running system, by part."""
    content: dict[str, int] = json.loads((folder / "processes.json").read_text(encoding="ascii"))
    return content


def part_argv(python: str, config: Path, command: Sequence[str]) -> tuple[str, ...]:
    """The command line of a part of the system."""
    # a parent that takes no programs from the current folder has children that take none either
    safe = ("-P",) if sys.flags.safe_path else ()
    return (python, *safe, "-m", "cli", "--config", str(config), *command)


def end_with_supervisor(environ: Mapping[str, str]) -> None:
    """In a part: end in order when the supervisor is gone, even if it was killed."""
    if environ.get(LIFELINE) != "stdin":
        return

    def wait() -> None:
        # not by sys.stdin: what waits in there when the process ends aborts it
        while os.read(0, 4096):
            continue
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
