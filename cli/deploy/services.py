"""What one machine runs as services over there: installed, started, stopped, looked at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from cli.deploy.files import THERE as FILES_THERE
from cli.deploy.heartbeats import Beats
from cli.deploy.service_units import PREFILL_GRACE_S, Kind, Service
from cli.deploy.ssh import MachineError, Remote
from grading.config.settings import Machine

THERE = Path(__file__).parent / "remote" / "cluster_there.py"
SPARE_S = 60.0


@dataclass(frozen=True)
class State:
    """How the service is. `version` names the program there, `kind` what keeps it running."""

    kind: Kind
    installed: bool
    running: bool
    changed: bool
    pid: int
    detail: str
    version: str

    @property
    def text(self) -> str:
        """In a word or two."""
        if not self.installed:
            return "not deployed"
        return f"running ({self.kind})" if self.running else f"stopped ({self.kind})"


@dataclass(frozen=True)
class MachineService:
    """A service of a machine: its worker, or what reads prompts for others."""

    machine: Machine
    remote: Remote
    part: Literal["worker", "prefill"] = "worker"

    @property
    def name(self) -> str:
        """As the service manager knows it, after `grader-` or `grader.`."""
        return f"{self.part}-{self.machine.name}"

    @property
    def label(self) -> str:
        """As people are told of it."""
        return self.machine.name if self.part == "worker" else f"{self.machine.name}, {self.part}"

    @property
    def grace_s(self) -> float:
        """Seconds that it may take to end."""
        return self.machine.grace_s if self.part == "worker" else PREFILL_GRACE_S

    def described(self, facts: dict[str, Any]) -> Service:
        """What is to be kept running, from the facts of the machine."""
        folder = PurePosixPath(facts["folder"])
        command = (
            str(folder / "environment/bin/python"),
            "-m",
            "cli",
            "--config",
            str(folder / "config.toml"),
        )
        environment = {"PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
        models = self.remote.ssh.models
        if models:
            home = facts["home"]
            environment["HF_HUB_CACHE"] = models.replace("~", home, 1) if models.startswith("~") else models
        return Service(
            name=self.name,
            command=(*command, self.part, self.machine.name),
            folder=folder / "current",
            env_file=folder / "grader.env",
            grace_s=self.grace_s,
            log=folder / "var" / f"{self.name}.log",
            environment=environment,
            system=facts["uid"] == 0,
        )

    def do(self, action: str, content: str = "") -> State:
        """Install, start, stop, restart or look (`state`); how it is afterwards. Raises MachineError."""
        answer = self._call(action, content)
        return State(**{key: answer[key] for key in State.__dataclass_fields__})

    def _call(self, action: str, content: str = "") -> dict[str, Any]:
        stop_s = self.grace_s + 20
        answer = self.remote.call(
            THERE,
            *(action, self.remote.ssh.service, self.name, str(stop_s)),
            stdin=content.encode(),
            timeout_s=stop_s + SPARE_S if action in ("stop", "restart") else SPARE_S,
        )
        assert isinstance(answer, dict)
        return answer

    def start(self, beats: Beats, wait_s: float, *, again: bool = False) -> tuple[State, float]:
        """Start it, or start it again, and wait for a beat; the state and the seconds until the beat.

        MachineError with the last lines of its log when no beat comes.
        """
        before = beats.of(self.machine.name)
        state = self.do("restart" if again else "start")
        if not state.changed and not again and before:
            return state, 0.0
        try:
            return state, beats.until_new(self.machine.name, before if state.changed else set(), wait_s)
        except MachineError as error:
            raise self._with_log(error.message) from None

    def listen(self, wait_s: float, *, again: bool = False) -> State:
        """Start what reads prompts for others, or start it again, and wait until it takes connections.

        MachineError with the last lines of its log when it does not.
        """
        assert self.machine.prefill is not None
        address = self.machine.prefill.listen
        state = self.do("restart" if again else "start")
        words = ("listens", *address.rsplit(":", 1), str(wait_s))
        listens = self.remote.call(FILES_THERE, *words, timeout_s=wait_s + SPARE_S)
        if not listens or not self.do("state").running:
            raise self._with_log(
                f"{self.machine.name}: {self.name} was started, but does not listen at {address} within "
                f"{wait_s:.0f} s. Large models take longer to load: --wait."
            )
        return state

    def _with_log(self, message: str) -> MachineError:
        log = str(self._call("log")["log"]).strip()
        return MachineError(f"{message} Its log ends:\n{log}" if log else message)


def services_of(machine: Machine, remote: Remote) -> list[MachineService]:
    """What a machine runs: its worker, and what reads prompts for others where it has [machines.prefill]."""
    parts: list[Literal["worker", "prefill"]] = ["worker", "prefill"] if machine.prefill else ["worker"]
    return [MachineService(machine, remote, part) for part in parts]
