"""config.toml as frozen values, validated at start; an error names the key and says what is allowed.

Secrets come from the environment: `GRADER_REDIS_URL`, `GRADER_DATABASE_URL`, `GRADER_SECRET_KEY`,
`GRADER_MAIL_PASSWORD`, `GRADER_FILES_KEY_ID`, `GRADER_FILES_SECRET`, `GRADER_LMS_<CONNECTION>_SECRET`,
`GRADER_EVENTS_<NAME>_SECRET` and
`GRADER_SIGN_ON_<NAME>_SECRET`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from grading.config import redis_url
from grading.config.database_url import split_hosts
from grading.config.files import Files
from grading.config.machines import EngineSettings, HttpUrl, Machine, Name, Placement, Prefill, Ssh
from grading.config.mail import Mail
from grading.config.sign_on import Provider, Rule, SignOn
from grading.domain.base_value import Value
from grading.domain.errors import ConfigError
from grading.domain.learning_platforms import platform_modules
from grading.domain.model_families import family_of
from grading.domain.ssrf import Allowed
from grading.domain.stages import STAGES, StageRow


class Gateway(Value):
    """An OpenAI-compatible API for a course's tools, with lower priority than grading."""

    enabled: bool = False
    """Machines answer its requests when grading leaves free slots; `grader up` starts it too."""
    host: str = "127.0.0.1"
    """The address the gateway listens on."""
    port: int = Field(default=8100, ge=1, le=65535)
    """The port the gateway listens on."""
    max_tokens: int = Field(default=2048, ge=16, le=32768)
    """The most tokens of an answer, and the default of a request without a number."""
    limit_s: float = Field(default=300, ge=5, le=3600)
    """Seconds from a request to the end of its answer, waiting for a machine included."""
    at_once: int = Field(default=64, ge=1, le=1000)
    """Requests open at the same time, all tokens together."""
    per_token: int = Field(default=4, ge=1, le=1000)
    """Requests of one token open at the same time, at all gateways together."""
    daily_tokens: int = Field(default=0, ge=0, le=10**12)
    """Tokens of prompts and answers that one API token may use a day (UTC); 0: any number. A token may
    have its own number."""
    waiting: int = Field(default=32, ge=1, le=10_000)
    """Requests that may wait for the same model; more are answered 429."""
    max_body_kb: int = Field(default=512, ge=1, le=16_384)
    """The largest request, in KiB."""


MOST_SLOTS = 64


class SandboxSettings(Value):
    """The sandbox worker, which runs students' work."""

    backend: Literal["auto", "bubblewrap", "container", "none"] = "auto"
    """The kind of sandbox; `auto` takes bubblewrap if it works, else the container engine if one is
    named, else `none`, which runs nothing."""
    slots: int = Field(default=0, ge=0, le=MOST_SLOTS)
    """Documents that run at the same time; 0: one for each available core."""
    engine: str = ""
    """The program of a container engine, `docker` or `podman`."""
    image: str = ""
    """The image that the container engine runs; `deploy/sandbox.Dockerfile` makes one."""
    python: str = ""
    """The Python that runs students' work; empty: the one `make sandbox` made, else the plain Python of this
    system."""
    r: str = ""
    """The Rscript that runs students' work; empty: the one on the PATH."""
    packages: tuple[str, ...] = ()
    """Packages that students may use though nothing of an assignment asks for them; if one of these is
    not installed, students lose no points. Importing any other is an error of the work."""
    seconds: float = Field(default=120.0, ge=1, le=3600)
    """Wall time of one document with all its tests, seconds."""
    cell_s: float = Field(default=30.0, ge=0.1, le=3600)
    """Wall time of one cell or script, seconds."""
    memory_mb: int = Field(default=1024, ge=128, le=1_000_000)
    """Memory of one document's processes together, MiB."""
    processes: int = Field(default=64, ge=8, le=4096)
    """Processes and threads of one document at the same time."""
    disk_mb: int = Field(default=256, ge=1, le=100_000)
    """What one document may write, MiB; it is kept in memory."""
    output_kb: int = Field(default=512, ge=16, le=16_384)
    """Text that one document may print, KiB."""

    @model_validator(mode="after")
    def _container_is_named(self) -> SandboxSettings:
        if self.backend == "container" and not (self.engine and self.image):
            raise ValueError("a container needs its engine (docker or podman) and an image")
        return self

    @property
    def at_once(self) -> int:
        """Documents that are run at the same time on this machine."""
        return self.slots or min(_usable_cores(), MOST_SLOTS)

    @property
    def limits(self) -> Limits:
        """What one execution may use."""
        names = ("seconds", "cell_s", "memory_mb", "processes", "disk_mb", "output_kb")
        return Limits(**{name: getattr(self, name) for name in names})


def _usable_cores() -> int:
    """Those that this process may use, fewer than there are where it was told so."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Limits(Value):
    """What one execution may use."""

    seconds: float = Field(default=120.0, gt=0)
    """Wall time in all."""
    cell_s: float = Field(default=30.0, gt=0)
    """Wall time of one cell, or of a script."""
    memory_mb: int = Field(default=1024, ge=64)
    """Of all its processes together, MiB."""
    processes: int = Field(default=64, ge=4)
    """Processes and threads at the same time."""
    disk_mb: int = Field(default=256, ge=1)
    """What it may write, MiB."""
    output_kb: int = Field(default=512, ge=1)
    """Text it may print in all, KiB."""


EVERY_COURSE = "*"
BoundCourse = Annotated[str, StringConstraints(pattern=r"^(\*|[a-z0-9][a-z0-9-]*)$", max_length=64)]


class EventReceiver(Value):
    """A receiver of events about submissions and grades; its secret comes from the environment.

    See docs/how-to/developers/events.md.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=30)]
    """Lowercase letters, digits and hyphens; unique."""
    url: Annotated[str, StringConstraints(pattern=r"^https?://[!-~]+$", max_length=2000)]
    """The address to post messages to."""

    @field_validator("url")
    @classmethod
    def _with_host(cls, url: str) -> str:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:  # a port that is no number is a ValueError of its own
            raise ValueError("write an address such as https://lms.example/events")
        return url


PlatformSettings = TypeVar("PlatformSettings", bound=Value)


def platform_settings() -> tuple[type[Value], ...]:
    """The keys that learning platforms add to `[server]`: `Settings` of `grading.integrations.<name>`."""
    packages = platform_modules("grading.integrations.{}").values()
    return tuple(one.Settings for one in packages if hasattr(one, "Settings"))


class Server(Value):
    """The web app: where it answers and what it accepts."""

    public_url: HttpUrl = "http://localhost:8080"
    """The address people use; with https, cookies are secure and one proxy is trusted."""
    security_contact: Annotated[
        str, StringConstraints(pattern=r"^(mailto:[!-~]+@[!-~]+|https://[!-~]+)?$", max_length=500)
    ] = ""
    """Who is told of vulnerabilities, `mailto:security@school.example` or an `https://` page; then
    /.well-known/security.txt says so."""
    host: str = "127.0.0.1"
    """The address the web app listens on."""
    port: int = Field(default=8080, ge=1, le=65535)
    """The port the web app listens on."""
    threads: int = Field(default=8, ge=1, le=64)
    """Requests answered at the same time."""
    drain_s: float = Field(default=0, ge=0, le=300)
    """Seconds from SIGTERM on in which it serves on while /readyz says 503, for load balancers."""
    max_upload_mb: int = Field(default=32, ge=1, le=1024)
    """The largest upload, and the most that is unpacked from it, in MiB."""
    max_data_mb: int = Field(default=10, ge=0, le=1024)
    """Data files (.csv, .xlsx …) of one submission together, for its run, in MiB; 0 takes none."""
    max_files: int = Field(default=50, ge=1, le=1000)
    """Readable files of one submission after unpacking."""
    uploads_per_minute: int = Field(default=120, ge=1)
    """Uploads one person may send a minute, with all their tokens together."""
    api_per_minute: int = Field(default=1200, ge=1)
    """Requests to the HTTP API one person may send a minute, with all their tokens together."""
    release: Literal["at_once", "after_review"] = "after_review"
    """When students see grades, for assignments without their own setting."""
    lms_connections: dict[Name, tuple[BoundCourse, ...]] = Field(default_factory=dict)
    """Who may post webhooks: for each connection the slugs of its courses, or `"*"` for every course."""
    event_receivers: tuple[EventReceiver, ...] = ()
    """Who is told what happens to submissions; a table each, `[[server.event_receivers]]`."""
    outside_allowed: tuple[str, ...] = ()
    """Hosts and networks outside the public internet that Grader may connect to, such as `10.0.0.0/8`."""
    _of_platforms: dict[type[Value], Value] = PrivateAttr(default_factory=dict)

    def of_platform(self, kind: type[PlatformSettings]) -> PlatformSettings:
        """The keys that a learning platform adds, as values of its own class."""
        found = self._of_platforms[kind]
        assert isinstance(found, kind)
        return found

    @property
    def allowed(self) -> Allowed:
        """The same, for `grading.integrations.http_client`."""
        return Allowed.of(self.outside_allowed)

    def admits(self, connection: str, course: str) -> bool:
        """Whether messages of a connection may concern a course, by its slug."""
        bound = self.lms_connections.get(connection, ())
        return EVERY_COURSE in bound or course in bound

    @model_validator(mode="wrap")
    @classmethod
    def _with_platforms(cls, given: Any, core: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(given, dict):
            return core(given)
        rest, read = dict(given), {}
        for kind in platform_settings():
            read[kind] = kind.model_validate({key: rest.pop(key) for key in kind.model_fields if key in rest})
        made = core(rest)
        made._of_platforms = read
        return made

    @field_validator("lms_connections", mode="before")
    @classmethod
    def _with_courses(cls, connections: object) -> object:
        if isinstance(connections, list | tuple):
            raise ValueError(
                "name the courses of each connection in a table [server.lms_connections], "
                'such as canvas = ["data-101"]; ["*"] is every course'
            )
        return connections

    @field_validator("outside_allowed")
    @classmethod
    def _readable(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        Allowed.of(entries)
        return entries

    @field_validator("event_receivers")
    @classmethod
    def _one_name_each(cls, receivers: tuple[EventReceiver, ...]) -> tuple[EventReceiver, ...]:
        names = [receiver.name for receiver in receivers]
        if len(set(names)) < len(names):
            raise ValueError("two receivers have the same name; names must be unique")
        return receivers


__all__ = [
    "Config",
    "Database",
    "EngineSettings",
    "EventReceiver",
    "Files",
    "Gateway",
    "Machine",
    "Mail",
    "Placement",
    "Prefill",
    "Provider",
    "Redis",
    "Retention",
    "Rule",
    "SandboxSettings",
    "Server",
    "SignOn",
    "Ssh",
    "StageSettings",
    "load",
    "parse",
]


class Redis(Value):
    """The broker."""

    ca_file: str | None = None
    """The certificate authority of a `rediss://` server, as a PEM file; by default, those this computer
    trusts."""
    url: Annotated[str, StringConstraints(pattern=r"^rediss?(\+sentinel)?://\S+$")] = (
        "redis://127.0.0.1:6379/0"
    )
    """`redis://` or `rediss://`, with a password unless on loopback, or `redis+sentinel://` or `rediss+sentinel://`
    with the hosts of sentinels; GRADER_REDIS_URL wins."""
    visibility_timeout_s: int = Field(default=1200, ge=10)
    """Must exceed the longest stage budget."""
    monitor: bool = False
    """Workers send task events to Celery's monitors, such as Flower, without students' work."""

    @field_validator("url")
    @classmethod
    def _checked(cls, url: str, others: ValidationInfo) -> str:
        """Completed once, so that every client reads the same."""
        return redis_url.checked(url, others.data.get("ca_file"))


class Database(Value):
    """The store."""

    url: str = "sqlite:///var/grader.db"
    """SQLite or PostgreSQL; of several hosts (`one:5432,two:5432`) the primary is used.

    GRADER_DATABASE_URL wins.
    """

    @field_validator("url")
    @classmethod
    def _shared(cls, url: str) -> str:
        """Every process must see the same tables, so none that live in memory."""
        if re.match(r"postgresql(\+psycopg)?://\S", url) or (
            re.match(r"sqlite(\+pysqlite)?:///[^:?]", url) and "mode=memory" not in url
        ):
            split_hosts(url)  # raises ValueError
            return url
        # not the value itself: it may hold a password
        raise ValueError("write postgresql://user@host/name, or sqlite:///path of a file")


class Retention(Value):
    """How long data is kept, in days; 0 keeps it forever. Ungraded and unreleased work is always kept."""

    submissions_days: int = Field(default=0, ge=0)
    """Submissions with their files, reports and grades, from the day they were submitted."""
    results_days: int = Field(default=0, ge=0)
    """Prompts and answers of machines, from the day of the grade; report and grade stay."""
    executions_days: int = Field(default=90, ge=0)
    """Cached runs of students' work, so that a regrade need not run it again."""
    batches_days: int = Field(default=30, ge=0)
    """Class ZIP files, from their upload; the submissions made from them stay."""
    audit_days: int = Field(default=0, ge=0)
    """Audit log entries, except those of erasures."""
    use_days: int = Field(default=400, ge=0)
    """How many tokens of models each API token used by the gateway, by day."""
    messages_days: int = Field(default=30, ge=4)
    """Idempotency keys, IDs of webhooks and sent messages: for so long, repeats are recognized."""


class StageSettings(Value):
    """Limits of one stage, for every machine."""

    budget_s: float = Field(default=600, gt=0)
    """Seconds a run may take on a machine, loading the model included."""
    max_output_tokens: int = Field(default=1200, ge=16, le=32768)
    """Tokens of the answer; the shares of its texts follow from it."""
    temperature: float = Field(default=0.3, ge=0, le=2)
    """Sampling temperature; 0 is the most repeatable."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Draw only from the likeliest tokens that together have this probability."""
    seed: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Makes drawing repeatable; some servers stop batching then, so set it only if you need it."""


def _defaults(row: StageRow) -> StageSettings:
    return StageSettings(max_output_tokens=row.max_output_tokens)


class Config(Value):
    """The whole of config.toml."""

    server: Server = Field(default_factory=Server)
    redis: Redis = Redis()
    database: Database = Database()
    files: Files = Field(default_factory=Files)
    retention: Retention = Retention()
    sandbox: SandboxSettings = SandboxSettings()
    gateway: Gateway = Gateway()
    mail: Mail = Mail()
    sign_on: SignOn = SignOn()
    stages: dict[str, StageSettings] = Field(
        default_factory=lambda: {row.name: _defaults(row) for row in STAGES.values() if row.always}
    )
    machines: tuple[Machine, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _with_placed_stages(self) -> Config:
        """A stage that a machine does has the bounds of its row where it has no table."""
        for name in (name for machine in self.machines for name in machine.stages):
            row = STAGES.get(name)
            if row is not None and not row.always:
                self.stages.setdefault(name, _defaults(row))
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        for stage in (row.name for row in STAGES.values() if row.always):
            if stage not in self.stages:
                raise ValueError(f"stages.{stage}: this table is missing; every submission has this stage")
        names = [machine.name for machine in self.machines]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"machines: the name '{name}' is used twice; names must be unique")
        for index, machine in enumerate(self.machines):
            for stage in machine.stages:
                if stage not in self.stages:
                    raise ValueError(
                        f"machines[{index}].stages.{stage}: not a stage; allowed: {', '.join(self.stages)}"
                    )
        for stage, settings in self.stages.items():
            if settings.budget_s >= self.redis.visibility_timeout_s:
                raise ValueError(
                    f"stages.{stage}.budget_s: must be below redis.visibility_timeout_s "
                    f"({self.redis.visibility_timeout_s}), or work would be given out twice"
                )
        return self

    def machine(self, name: str) -> Machine:
        """The machine of that name."""
        for machine in self.machines:
            if machine.name == name:
                return machine
        names = [machine.name for machine in self.machines]
        like = "".join(f" Did you mean '{one}'?" for one in get_close_matches(name, names, 1))
        raise ConfigError(f"There is no machine '{name}' in config.toml.{like} It has {', '.join(names)}.")

    def family_of(self, model: str) -> str:
        """The family of a model: as a machine's placement has it, else by the model's name."""
        places = (place for machine in self.machines for place in machine.stages.values())
        return next((one.family for one in places if one.model == model and one.family), family_of(model))

    def with_engine(self, engine: str) -> Config:
        """The same machines with every stage on another in-process engine."""
        machines = [
            {**m.model_dump(), "stages": {s: {"engine": engine, "model": engine} for s in m.stages}}
            for m in self.machines
        ]
        return Config.model_validate({**dict(self), "machines": machines})


def load(path: Path, environ: Mapping[str, str]) -> Config:
    """Read and validate a file; addresses in `environ` win over those in the file."""
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist. Name the configuration file with --config.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}.") from None
    raw = _with_addresses(raw, environ)
    config = parse(raw)
    config.files.take_keys(environ)
    for stage in config.stages:
        if not any(stage in machine.stages for machine in config.machines):
            raise ConfigError(f"stages.{stage}: no machine does this stage, so nothing could be graded")
        if all(machine.reserved for machine in config.machines if stage in machine.stages):
            raise ConfigError(
                f"stages.{stage}: all machines that do this stage are reserved, so submissions would wait"
            )
    return config


def _with_addresses(raw: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """With the addresses of the environment: of Redis, the database and the web app, and who may be asked."""
    for key, variable in (("redis", "GRADER_REDIS_URL"), ("database", "GRADER_DATABASE_URL")):
        if environ.get(variable):
            raw[key] = {**raw.get(key, {}), "url": environ[variable]}
    server = raw.get("server", {})
    if environ.get("GRADER_PUBLIC_URL"):
        server = {**server, "public_url": environ["GRADER_PUBLIC_URL"]}
    if environ.get("GRADER_OUTSIDE_ALLOWED"):
        more = environ["GRADER_OUTSIDE_ALLOWED"].split()
        server = {**server, "outside_allowed": [*server.get("outside_allowed", ()), *more]}
    return {**raw, "server": server} if server else raw


def parse(raw: dict[str, Any]) -> Config:
    """Validate an already parsed file."""
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        problems = error.errors()
        within = {problem["loc"][0] for problem in problems if len(problem["loc"]) > 1}
        # a list whose parts have faults seems empty, too: that would be said twice
        lines = [_explain(p) for p in problems if p["loc"] not in {(name,) for name in within}]
        raise ConfigError("\n".join(lines)) from None


def _explain(problem: Any) -> str:
    """One problem as `machines[1].stages.feedback.model: …`."""
    path = ""
    for part in problem["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        message = "there is no such key"
        if path.rpartition(".")[2] in Machine.model_fields and ".ssh." in path:
            message += " here; put it above the [machines.ssh] of its machine"
    elif problem["type"] == "missing":
        message = "this key is missing"
    given = problem.get("input")
    if isinstance(given, str | int | float) and problem["type"] not in ("missing", "value_error"):
        message += f" (it is {given!r})"
    return f"{path}: {message}" if path else message
