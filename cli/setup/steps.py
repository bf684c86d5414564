"""The steps of `grader setup`, in order: each looks at what is there first and changes only the rest."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import requests

from cli.deploy.unit_command import described
from cli.deploy.units import SANDBOX_ACCOUNT, SERVER_ACCOUNT
from cli.settings import Settings
from cli.setup import accounts, machines, postgresql, redis, system
from cli.setup.accounts import DEPLOY_ACCOUNT, DEPLOY_HOME
from cli.setup.host import Host, Made, SetupError
from grading.broker import signing
from grading.broker.canaries import Canaries
from grading.broker.connections import connect
from grading.config import settings as configuration
from grading.config.settings import Config, Machine
from grading.store import Store
from grading.store.accounts import users

PARTS = ("web", "store", "sandbox", "sweep")
UNITS = "/etc/systemd/system"
SAMPLE = "samples/assignments/python-basket"
READY_S = 90.0
LONG_S = 1800.0
ALREADY = "no change"
OF_THE_FIRST = ("certificates", "Redis", "machines")
"""Steps of the server that has Redis; further servers use what it made."""
ASSIGNMENT = "business-analytics/python-basket"


@dataclass(frozen=True)
class Answers:
    """What the operator decided."""

    address: str
    machines: tuple[machines.Named, ...] = ()
    engine: str = "ollama"
    r: bool = False
    sample: bool = False


Step = tuple[str, str, Callable[[], str]]


@dataclass
class Setup:
    """Brings this computer to what a server of Grader is. Steps raise SetupError."""

    host: Host
    answers: Answers
    checkout: Path
    say: Callable[[str], None]
    ask: Callable[[str], bool]
    """Asks a question that is answered yes or no."""
    facts: system.Facts | None = None
    password: str | None = None
    """Of the first administrator, when one was made."""
    unreached: list[Machine] = field(default_factory=list)

    def steps(self) -> list[Step]:
        """Name, what it does, and the step itself, in order."""
        return [step for step in self._all_steps() if not (self.further and step[0] in OF_THE_FIRST)]

    def _all_steps(self) -> list[Step]:
        packages = ", ".join(system.packages(self.answers.r, stores=not self.further)[:6])
        names = ", ".join(one.name for one in self.answers.machines)
        return [
            ("system", "check the system, the checkout and the disk; change nothing", self._system),
            ("packages", f"install missing packages: {packages} …", self._packages),
            (
                "users",
                "create the users grader, grader-sandbox and grader-deploy, without passwords",
                self._users,
            ),
            ("folders", f"create {accounts.FOLDER}, {self.checkout}/var and {DEPLOY_HOME}", self._folders),
            ("configuration", f"write {accounts.CONFIG}" + (f" with {names}" if names else ""), self._config),
            (
                "certificates",
                f"create a certificate authority and a certificate for {self.answers.address}",
                self._certificates,
            ),
            ("database", f"create the role and the database {postgresql.NAME} in PostgreSQL", self._database),
            ("secrets", "create passwords and keys; write them to one file for each user", self._secrets),
            ("Redis", f"start a separate Redis on port {redis.PORT}, with TLS and users", self._redis),
            ("students' Python", "install the environment that students' code runs in", self._students),
            ("tables", "create the tables, or upgrade them", self._tables),
            (
                "services",
                f"write the units of {', '.join(PARTS)} and {accounts.COMMAND}; start them",
                self._services,
            ),
            ("administrator", "create the first administrator", self._administrator),
            *([("sample", f"import {SAMPLE}", self._sample)] if self.answers.sample else []),
            ("machines", "create this server's SSH key and copy it to the machines", self._machines),
            ("doctor", "run `grader doctor`", self._doctor),
        ]

    @property
    def further(self) -> bool:
        """Whether the variables name Redis and the database of another server, which this one uses."""
        known = accounts.variables(self.host, SERVER_ACCOUNT)
        redis_url, database_url = known.get("GRADER_REDIS_URL", ""), known.get("GRADER_DATABASE_URL", "")
        others = not redis.is_ours(redis_url) and not postgresql.is_ours(database_url)
        return bool(redis_url and database_url) and others

    # --- the system -------------------------------------------------------------------------------

    def _system(self) -> str:
        self.facts = system.look(self.host, self.checkout)
        accounts.no_other_command(self.host)
        if self.further:
            self._has_what_the_first_has()
        else:
            redis.addresses_of(self.answers.address)
            self._no_other_redis()
        self.host.journal.answers |= {"address": self.answers.address, "r": self.answers.r}
        self.host.journal.write()
        return str(self.facts)

    def _no_other_redis(self) -> None:
        """Setup makes a Redis of its own. Raises SetupError where the variables name another."""
        known = accounts.variables(self.host, SERVER_ACCOUNT).get("GRADER_REDIS_URL", "")
        if known and not redis.is_ours(known):
            raise SetupError(
                f"GRADER_REDIS_URL in {SERVER_ACCOUNT.env_file} is not the Redis of setup. "
                f"Setup creates one on port {redis.PORT}. Remove that line: queued work "
                "is also in the database and is sent again. A further server also needs GRADER_DATABASE_URL: "
                "docs/how-to/administrators/several-hosts.md"
            )

    def _has_what_the_first_has(self) -> None:
        """A further server gets secret key and configuration from the first. Raises SetupError."""
        known, lacks = accounts.variables(self.host, SERVER_ACCOUNT), []
        if not known.get("GRADER_SECRET_KEY"):
            lacks.append(f"GRADER_SECRET_KEY in {SERVER_ACCOUNT.env_file}")
        if self.host.read(accounts.CONFIG) is None:
            lacks.append(accounts.CONFIG)
        if self.answers.machines:
            raise SetupError("Add machines on the first server, which has Redis; here no machine is known.")
        if lacks:
            raise SetupError(
                f"{SERVER_ACCOUNT.env_file} names Redis and the database of another server. Copy from there: "
                f"{', '.join(lacks)}."
            )

    def _packages(self) -> str:
        missing = [
            one
            for one in system.packages(self.answers.r, stores=not self.further)
            if not system.installed(self.host, one)
        ]
        for one in missing:
            self.host.journal.add("package", one)
        if missing:
            self.say(f"installing {' '.join(missing)}")
            system.install(self.host, missing)
        ours = Made("package", "redis-server") in self.host.journal.made
        if ours and self._systemd and self.host.read(redis.CONFIG) is None:
            # Debian starts one that nobody uses here
            self.host.run("systemctl", "disable", "--now", "redis-server.service")
        changed = self._changed([system.allow_sandboxes(self.host)])
        return f"{len(missing)} installed" if missing else changed

    @property
    def _systemd(self) -> bool:
        assert self.facts is not None
        return self.facts.systemd

    def _users(self) -> str:
        made = [
            one.name
            for one, home in accounts.homes(self.checkout).items()
            if accounts.make(self.host, one, home)
        ]
        return f"created {', '.join(made)}" if made else ALREADY

    def _folders(self) -> str:
        server, deploy = SERVER_ACCOUNT.name, DEPLOY_ACCOUNT.name
        made = [
            self.host.folder(accounts.FOLDER, 0o755),
            self.host.folder(f"{self.checkout}/var", 0o700, server, server),
            self.host.folder(DEPLOY_HOME, 0o700, deploy, deploy),
            self.host.folder(f"{DEPLOY_HOME}/.ssh", 0o700, deploy, deploy),
        ]
        if not self.further:
            made.append(self.host.folder(redis.FOLDER, 0o750, group="redis"))
            made.append(self.host.folder(redis.DATA, 0o700, "redis", "redis"))
        return self._changed(made)

    @staticmethod
    def _changed(changes: Iterable[bool]) -> str:
        return "done" if any([*changes]) else ALREADY

    # --- configuration and secrets ------------------------------------------------------------------

    def _config(self) -> str:
        there = self.host.read(accounts.CONFIG)
        if self.further:
            return ALREADY
        text = there if there is not None else (self.checkout / "config.toml").read_text(encoding="utf-8")
        named, engine = self.answers.machines, self.answers.engine
        text = machines.configured(text, named, engine, redis.AUTHORITY, first=there is None)
        return self._changed([self.host.write(accounts.CONFIG, text, 0o644)])

    def _certificates(self) -> str:
        return self._changed([redis.authority(self.host), redis.certificate(self.host, self.answers.address)])

    @property
    def _config_path(self) -> Path:
        return self.host.path(accounts.CONFIG)

    def _read(self) -> Config:
        """The configuration as the server's parts read it."""
        environ = accounts.variables(self.host, SERVER_ACCOUNT)
        return configuration.load(self._config_path, environ)

    def _database(self) -> str:
        known = accounts.variables(self.host, SERVER_ACCOUNT).get("GRADER_DATABASE_URL", "")
        if known and not postgresql.is_ours(known):
            told = accounts.keep_variables(self.host, SANDBOX_ACCOUNT, {"GRADER_DATABASE_URL": known})
            return f"grader.env names another database, which is used; {self._changed([told])}"
        if not postgresql.answers(self.host):
            system.start_postgresql(self.host, self._systemd)
        password = redis.password_of(known) or secrets.token_urlsafe(24)
        made = postgresql.make(self.host, password)
        url = {"GRADER_DATABASE_URL": postgresql.url(password)}
        written = [accounts.keep_variables(self.host, one, url) for one in (SERVER_ACCOUNT, SANDBOX_ACCOUNT)]
        return self._changed([made, *written])

    def _secrets(self) -> str:
        known = accounts.variables(self.host, SERVER_ACCOUNT)
        if self.further:
            return self._changed([self._tell({"GRADER_REDIS_URL": known["GRADER_REDIS_URL"]}, known)])
        password = redis.password_of(known.get("GRADER_REDIS_URL", "")) or secrets.token_urlsafe(32)
        address = {"GRADER_REDIS_URL": redis.url(signing.SERVER, password, redis.LOCAL[1])}
        return self._changed(
            [
                self._tell(address, known),
                accounts.keep_variables(self.host, DEPLOY_ACCOUNT, address | self._machine_urls(password)),
            ]
        )

    def _tell(self, address: dict[str, str], known: dict[str, str]) -> bool:
        """Write what the server's parts and the sandbox worker are told; True when that changed something."""
        own = {
            **address,
            "GRADER_SECRET_KEY": known.get("GRADER_SECRET_KEY") or secrets.token_urlsafe(32),
            "TMPDIR": known.get("TMPDIR") or f"{self.checkout}/var",
        }
        told = (SERVER_ACCOUNT, own), (SANDBOX_ACCOUNT, address)
        changed = [accounts.keep_variables(self.host, one, values) for one, values in told]
        return any(changed)

    def _machine_urls(self, password: str) -> dict[str, str]:
        """For each machine its variable, with the password it has unless the server's own is another now."""
        keys, known = signing.Keyring(password, users=True), accounts.variables(self.host, DEPLOY_ACCOUNT)
        found = {}
        for machine in self._names():
            variable = _variable(machine)
            there = redis.password_of(known.get(variable, ""))
            salt = there.partition(".")[0]
            if not there or there != keys.machine_password(machine, salt):
                there = keys.machine_password(machine)
            found[variable] = redis.url(signing.machine_user(machine), there, self.answers.address)
        return found

    def _names(self) -> list[str]:
        return [one.name for one in self._read().machines]

    def _redis(self) -> str:
        known = accounts.variables(self.host, DEPLOY_ACCOUNT)
        passwords = {name: redis.password_of(known[_variable(name)]) for name in self._names()}
        address = known["GRADER_REDIS_URL"]
        texts = {
            redis.CONFIG: redis.configuration(redis.addresses_of(self.answers.address)),
            redis.USERS: redis.users(self._read(), redis.password_of(address), passwords),
        }
        written = [self.host.write(path, text, 0o640, group="redis") for path, text in texts.items()]
        files = (*texts, redis.CERTIFICATE, redis.KEY, redis.AUTHORITY)
        started = (
            system.start(self.host, redis.SERVICE, files)
            if self._systemd
            else system.start_redis(self.host, any(written))
        )
        redis.until_answers(address)
        return self._changed([*written, started])

    # --- the parts ------------------------------------------------------------------------------------

    def _students(self) -> str:
        said = self.host.run("scripts/bootstrap", "sandbox", folder=str(self.checkout), timeout_s=LONG_S)
        return "installed" if said else ALREADY

    def _grader(self, *words: str) -> str:
        """Output of a command, as operators give it."""
        return self.host.run(accounts.COMMAND, *words, folder=str(self.checkout), timeout_s=LONG_S).strip()

    def _tables(self) -> str:
        self.host.write(accounts.COMMAND, accounts.wrapper(sys.executable), 0o755)
        return self._grader("db", "upgrade")

    def _services(self) -> str:
        settings = Settings(self._config_path)
        parts = [*PARTS, *(["gateway"] if self._read().gateway.enabled else [])]
        paths = {}
        for part in parts:
            unit = described(settings, part, system=True).rendered("systemd")
            path = f"{UNITS}/grader-{part}.service"
            paths[part] = (path, self.host.write(path, unit, 0o644))
        if self.host.has("systemd-analyze"):
            system.verify(self.host, [path for path, _ in paths.values()])
        if not self._systemd:
            return "units written, but systemd is not running; start these manually: " + ", ".join(
                f"`grader {part}`" for part in parts
            )
        dropped = self.drop_others(parts)
        if dropped or any(written for _, written in paths.values()):
            self.host.run("systemctl", "daemon-reload")
        started = [
            system.start(self.host, f"grader-{part}.service", self._files(path))
            for part, (path, _) in paths.items()
        ]
        self._until_ready()
        if why := system.not_run(self.host):
            self.say(f"! {why}")
        return self._changed([dropped, *started, *(written for _, written in paths.values())])

    def drop_others(self, parts: list[str]) -> bool:
        """Stop parts that an earlier run started and that the configuration wants no more."""
        wanted = {f"grader-{part}.service" for part in parts}
        dropped = False
        for made in [one for one in self.host.journal.made if one.kind == "unit"]:
            if made.name.startswith("grader-") and made.name not in wanted:
                system.drop(self.host, made.name)
                self.host.remove(f"{UNITS}/{made.name}")
                self.host.journal.remove(made, Made("file", f"{UNITS}/{made.name}"))
                dropped = True
        return dropped

    def _files(self, unit: str) -> tuple[str, ...]:
        """What a part was started with: where one of these is newer, it is started again."""
        environment = Path(sys.executable).parents[1]
        files = (unit, accounts.CONFIG, SERVER_ACCOUNT.env_file, SANDBOX_ACCOUNT.env_file)
        return (*files, f"{environment}/.made-run", f"{self.checkout}/.git/logs/HEAD")

    def _until_ready(self) -> None:
        """Wait until submissions are accepted and every part sends heartbeats. Raises SetupError."""
        config = self._read()
        host = "127.0.0.1" if config.server.host in ("0.0.0.0", "::") else config.server.host  # noqa: S104
        url = f"http://{host}:{config.server.port}/readyz"
        wanted = {"store", "sweeper", *(["sandbox"] if config.sandbox.backend != "none" else [])}
        end, here = time.monotonic() + READY_S, socket.gethostname()
        with closing(connect(config.redis.url)) as client:
            while True:
                alive = {one.part for one in Canaries(client).parts() if one.alive and one.host == here}
                away = sorted(wanted - alive) + ([] if _answers(url) else ["web"])
                if not away:
                    return
                if time.monotonic() > end:
                    raise SetupError(
                        f"Not running after {READY_S:.0f} s: {', '.join(away)}. "
                        f"`journalctl -u grader-{away[0]}` says why."
                    )
                time.sleep(0.3)

    def _administrator(self) -> str:
        with closing(Store(self._read().database.url)) as store, store.write() as session:
            self.password = users.ensure_administrator(session)
        return f"created admin, with the password {self.password}" if self.password else ALREADY

    def _sample(self) -> str:
        return self._grader("assignment", "import", SAMPLE).splitlines()[-1]

    # --- the machines -----------------------------------------------------------------------------------

    def _machines(self) -> str:
        made = machines.make_key(self.host)
        chosen = [one for one in self._read().machines if one.ssh is not None]
        if not chosen:
            return "key created; config.toml has no machine with SSH" if made else ALREADY
        new = [one for one in chosen if not machines.reached(self.host, one)]
        self.unreached = [one for one in new if not self._introduced(one)]
        if self.unreached:
            return f"not reachable: {', '.join(one.name for one in self.unreached)}"
        return f"{len(chosen)} reachable" if made or new else ALREADY

    def _introduced(self, machine: Machine) -> bool:
        try:
            machines.introduce(self.host, machine, os.environ.get("SUDO_USER"))
        except SetupError as error:
            self.say(f"{machine.name}: {error.message}")
            if not self.ask(f"Copy the key to {machine.name} with its password now?"):
                return False
            self.host.interact(
                *machines.ask_for_password(machine, ("runuser", "-u", DEPLOY_ACCOUNT.name, "--"))
            )
        return machines.reached(self.host, machine)

    def _doctor(self) -> str:
        done = self.host.attempt(accounts.COMMAND, "doctor", folder=str(self.checkout), timeout_s=LONG_S)
        for line in (done.stdout + done.stderr).splitlines():
            self.say(line)
        return "no failures" if done.returncode == 0 else "see above; machines fail until they are deployed"

    # --- afterwards -------------------------------------------------------------------------------------

    def next(self) -> list[str]:
        """What to do now, a sentence each."""
        sudo = ("sudo", "-u") if self.host.has("sudo") else ("runuser", "-u")
        config = self._read()
        lines = []
        if self.password:
            lines.append(
                f"Sign in at {config.server.public_url} as 'admin' with the password above. "
                "It is not shown again."
            )
        for one in self.unreached:
            words = machines.ask_for_password(
                one, (*sudo, DEPLOY_ACCOUNT.name, *(["--"] if sudo[0] == "runuser" else []))
            )
            lines.append(f"Copy this server's key to {one.name}:  {shlex.join(words)}")
        if self.further:
            lines.append("Add this server to the proxy: docs/how-to/administrators/several-hosts.md")
        elif any(one.ssh for one in config.machines):
            lines.append("Install the machines and start their workers:  sudo grader deploy --all")
        else:
            lines.append("Add machines:  sudo grader setup --machine NAME=USER@HOST")
        if not config.server.public_url.startswith("https://"):
            lines.append(
                f"Set up a proxy with HTTPS, and set server.public_url in {accounts.CONFIG}: "
                "docs/how-to/administrators/https.md"
            )
        lines.append("Check the installation at any time:  sudo grader doctor")
        return lines


def _variable(machine: str) -> str:
    return f"GRADER_REDIS_URL_{machine.upper().replace('-', '_')}"


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.RequestException:
        return False
