"""Deployment of one machine, step by step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from cli.deploy.file_transfer import DEPLOY_SCRIPT, Progress, copy, file, program, size
from cli.deploy.models import Models, wanted
from cli.deploy.packages import fetch_wheels, lock_for, platforms
from cli.deploy.services import Heartbeats, MachineService, State, services_of
from cli.deploy.ssh import MachineError, Remote
from cli.deploy.units import env_line
from cli.settings import Settings
from grading.config.settings import Machine, Redis
from grading.domain.model_digests import Claim, Difference, differing
from workers.machine.engines.remote_prefill import protocol as prefill

INSTALL_S = 3600.0
RETAINED = 1
"""Versions and environments that are kept beside those in use, to go back to."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Options:
    """What a deployment was asked to do."""

    environment: str | None = None
    offline: bool = False
    model_folders: tuple[str, ...] = ()
    wheels: Path = Path("var/wheels")
    quick: bool = False
    wait_s: float = 60.0


@dataclass
class Deployment:
    """Brings one machine to this version and this configuration. Steps raise MachineError."""

    settings: Settings
    machine: Machine
    remote: Remote
    options: Options
    environ: Mapping[str, str]
    say: Callable[[str], None]
    progress: Progress
    facts: dict[str, Any] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    """The weights that were found or brought there."""
    version: str = ""
    environment: str = ""
    _states: dict[str, State] = field(default_factory=dict)
    """How each service was when it was installed, by its name."""

    def steps(self) -> list[tuple[str, str, Callable[[], str]]]:
        """Name, what it does, and the step itself, in order."""
        options, models = self.options, wanted(self.machine)
        services = " and ".join(one.name for one in self._services)
        folder = self.remote.ssh.folder
        packages = "make an environment of the locked packages"
        if options.environment:
            packages = f"use the environment {options.environment}"
        elif options.offline:
            packages += f" from wheels fetched into {options.wheels} here and copied"
        names = ", ".join(str(one) for one in models) or "none needed"
        how = "copied from this computer if need be" if options.model_folders else "fetched there if need be"
        if options.offline and not options.model_folders:
            how = "which must be there"
        return [
            ("machine", f"reach {self.remote.address}, port {self.remote.ssh.port}; find Python", self._look),
            ("program", f"copy this version of Grader into {folder}/releases", self._program),
            ("packages", packages, self._packages),
            ("secrets", f"write {folder}/grader.env, for its owner only", self._secrets_file),
            ("models", f"verify {names}" + (f", {how}" if models else ""), self._models),
            ("service", f"write config.toml, install {services}", self._install),
            (
                "start",
                "start it, or start it again if anything changed, and wait for a heartbeat",
                self._start,
            ),
        ]

    @property
    def _services(self) -> list[MachineService]:
        return services_of(self.machine, self.remote)

    def _run_remote(self, *words: str, stdin: bytes = b"", timeout_s: float = 60.0) -> Any:
        return self.remote.call(DEPLOY_SCRIPT, *words, stdin=stdin, timeout_s=timeout_s)

    def _note(self, changed: bool, what: str) -> str:
        if changed:
            self.changed.append(what)
        return "changed" if changed else "the same"

    def _look(self) -> str:
        self.facts = self._run_remote("facts")
        if not self.facts["writable"]:
            raise MachineError(
                f"{self.machine.name}: {self.facts['folder']} cannot be written by {self.remote.address}; "
                "make it for that user, or set folder in [machines.ssh]."
            )
        free, system = size(self.facts["free"]), self.facts["platform"]
        return f"Python {self.facts['version']} at {self.facts['python']}, {system}, {free} free"

    def _program(self) -> str:
        self.version, files = program()
        # compared by hash each time, so that a release that broke off or was changed is made whole
        sent = copy(self.remote, files, f"releases/{self.version}", self.progress)
        return f"version {self.version} " + (f"copied, {size(sent)}" if sent else "is there")

    def _packages(self) -> str:
        if self.options.environment:
            self.environment = self.options.environment
            if not self._run_remote("exists", f"{self.environment}/bin/python"):
                raise MachineError(f"{self.machine.name}: there is no {self.environment}/bin/python.")
            return f"{self.environment} is used as it is"
        lock = lock_for(self.machine, self.facts["markers"])
        return self.make_environment(lock)

    def make_environment(self, lock: str) -> str:
        """An environment of these locked packages, unless there is one."""
        made_of = f"{self.facts['python']} {self.facts['version']}\n{lock}"
        name = hashlib.sha256(made_of.encode()).hexdigest()[:12]
        self.environment = f"{self.facts['folder']}/environments/{name}"
        count = lock.count("==")
        if self._run_remote("exists", f"environments/{name}/finished"):
            return f"{count} packages are there"
        if not self.facts["venv"]:
            raise MachineError(
                f"{self.machine.name}: {self.facts['python']} cannot make environments; install its modules "
                "venv and ensurepip (Debian, Ubuntu: apt-get install python3-venv)."
            )
        words = ["environment", name]
        if self.options.offline:
            words.append(self._wheels(lock))
        self.say(f"installing {count} packages, which takes a few minutes")
        self._run_remote(*words, stdin=lock.encode(), timeout_s=INSTALL_S)
        return f"{count} packages installed" + (" from wheels" if self.options.offline else "")

    def _wheels(self, lock: str) -> str:
        """Bring the wheels there; the folder they are in."""
        version = ".".join(self.facts["version"].split(".")[:2])
        folder = self.options.wheels / f"{platforms(self.facts)[0]}-{version}"
        self.say(f"fetching wheels into {folder}")
        files = [file(path.name, path) for path in fetch_wheels(lock, self.facts, folder)]
        needed = [one for one in files if one.sha256 in lock]
        sent = copy(self.remote, needed, "wheels", self.progress)
        self.say(f"{len(needed)} wheels, {size(sent)} copied")
        return "wheels"

    def _secrets_file(self) -> str:
        lines = "".join(env_line(name, value) for name, value in self._secrets().items())
        output = self._run_remote("keep_secrets", stdin=lines.encode())
        return "grader.env " + self._note(output, "grader.env")

    def _secrets(self) -> dict[str, str]:
        """The machine's own variables; those that are not given here stay as they are over there."""
        there = self._run_remote("secrets")
        redis_url = self._variable("GRADER_REDIS_URL")
        url = redis_url or self.settings.config.redis.url
        if urlsplit(url).hostname in LOOPBACK and self.remote.ssh.host not in LOOPBACK:
            if "GRADER_REDIS_URL" not in there:
                variable = f"GRADER_REDIS_URL_{_upper(self.machine.name)}"
                raise MachineError(
                    f"{self.machine.name} would look for Redis on itself. Set {variable} to the address of "
                    "Redis as that machine sees it, rediss://USER:PASSWORD@SERVER:6379/0."
                )
            redis_url = ""
        if redis_url:
            try:
                Redis(url=redis_url)
            except ValidationError as error:
                reason = error.errors()[0]["msg"].removeprefix("Value error, ")
                raise MachineError(f"GRADER_REDIS_URL for {self.machine.name}: {reason}.") from None
        found = {"GRADER_REDIS_URL": redis_url}
        for engine in self.machine.engines.values():
            key = engine.options.get("api_key_env")
            if isinstance(key, str):
                found[key] = self._variable(key)
                if not found[key] and key not in there:
                    raise MachineError(f"{self.machine.name} needs {key}; set it here and deploy again.")
        if self.machine.prefill or any(one.engine == "hybrid" for one in self.machine.stages.values()):
            found[prefill.SECRET_VARIABLE] = self._variable(prefill.SECRET_VARIABLE)
            if found[prefill.SECRET_VARIABLE] or prefill.SECRET_VARIABLE not in there:
                prefill.secret(found)
        return {name: value for name, value in found.items() if value}

    def _variable(self, name: str) -> str:
        """A variable of this computer, the machine's own first."""
        own = f"{name}_{_upper(self.machine.name)}"
        return self.environ.get(own) or self.environ.get(name, "")

    def _models(self) -> str:
        options = self.options
        models = Models(
            self.remote, options.model_folders, options.offline, options.quick, self.say, self.progress
        )
        summary = "; ".join(models.bring(one) for one in wanted(self.machine)) or "none needed"
        self.claims = models.claims
        return summary

    def _install(self) -> str:
        config = self.settings.path.read_bytes()
        described = [(one, one.described(self.facts), one.do("state").kind) for one in self._services]
        now = self._run_remote("switch", self.version, self.environment, stdin=config)
        changes = [f"{what} {self._note(changed, what)}" for what, changed in now.items()]
        for one, service, kind in described:
            state = self._states[one.name] = one.do("install", service.rendered(kind))
            what = "service" if one.part == "worker" else f"service {one.part}"
            changes.append(f"{state.kind} {self._note(state.changed, what)}")
        return ", ".join(changes)

    def _start(self) -> str:
        return "; ".join(self._start_one(one) for one in self._services)

    def _start_one(self, one: MachineService) -> str:
        again = bool(self.changed) and self._states[one.name].running
        if again:
            self.say(f"stopping {one.name} first; it has {one.grace_s:g} s to finish or hand back its work")
        if one.part == "prefill":
            state = one.listen(self.options.wait_s, again=again)
            how = "started again" if again else "started" if state.changed else "runs"
            return f"{one.part} {how}, listens"
        with Heartbeats(self.settings.config) as heartbeats:
            state, seconds = one.start(heartbeats, self.options.wait_s, again=again)
        if not (state.changed or again):
            return "runs and heartbeats; nothing had changed"
        self._run_remote("tidy", str(RETAINED))
        return f"{'started again' if again else 'started'}; heartbeats after {seconds:.1f} s"

    def differences(self) -> list[Difference]:
        """The models that this machine and others that send heartbeats claim to share, with different
        weights.
        """
        with Heartbeats(self.settings.config) as heartbeats:
            claims = heartbeats.claims()
        claim_by_model = {
            (one.machine, one.engine, one.model): one for one in [*claims, *self.claims] if one.digest
        }
        mine = {(one.engine, one.model) for one in wanted(self.machine)}
        return [one for one in differing(claim_by_model.values()) if (one.engine, one.model) in mine]


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")
