"""config.toml as frozen values, validated at start; an error names the key and says what is allowed.

Secrets come from the environment: `GRADER_REDIS_URL`, `GRADER_DATABASE_URL`, `GRADER_SECRET_KEY`,
`GRADER_MAIL_PASSWORD`, `GRADER_LMS_<CONNECTION>_SECRET` and `GRADER_EVENTS_<NAME>_SECRET`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from grading.config import redis_url
from grading.config.gateway import Gateway
from grading.config.machines import EngineSettings, Machine, Placement, Prefill, Ssh
from grading.config.mail import Mail
from grading.config.sandbox import Checks
from grading.config.server import EventReceiver, Server
from grading.domain.errors import ConfigError
from grading.domain.stages import STAGES
from grading.domain.value import Value

__all__ = [
    "Checks",
    "Config",
    "Database",
    "EngineSettings",
    "EventReceiver",
    "Gateway",
    "Machine",
    "Mail",
    "Placement",
    "Prefill",
    "Redis",
    "Retention",
    "Server",
    "Ssh",
    "StageSettings",
    "load",
    "parse",
]


class Redis(Value):
    """The broker."""

    ca_file: str | None = None
    """The certificate authority of a `rediss://` server, as a PEM file; else those this computer trusts."""
    url: Annotated[str, StringConstraints(pattern=r"^rediss?://\S+$")] = "redis://127.0.0.1:6379/0"
    """`redis://` or `rediss://`, with a password unless on loopback; GRADER_REDIS_URL wins."""
    visibility_timeout_s: int = Field(default=1200, ge=10)
    """Must exceed the longest stage budget."""
    monitor: bool = False
    """Workers tell Celery's monitors, such as Flower, what they do; never what students wrote."""

    @field_validator("url")
    @classmethod
    def _checked(cls, url: str, others: ValidationInfo) -> str:
        """Completed once, so that every client reads the same."""
        return redis_url.checked(url, others.data.get("ca_file"))


class Database(Value):
    """The store."""

    url: str = "sqlite:///var/grader.db"
    """SQLite or PostgreSQL, as SQLAlchemy writes it; GRADER_DATABASE_URL wins."""

    @field_validator("url")
    @classmethod
    def _shared(cls, url: str) -> str:
        """Every process must see the same tables, so none that live in memory."""
        if re.match(r"postgresql(\+psycopg)?://\S", url) or (
            re.match(r"sqlite(\+pysqlite)?:///[^:?]", url) and "mode=memory" not in url
        ):
            return url
        # not the value itself: it may hold a password
        raise ValueError("write postgresql://user@host/name, or sqlite:///path of a file")


class Retention(Value):
    """How long things are kept, in days; 0 keeps them for ever. Ungraded and unreleased work always stays."""

    submissions_days: int = Field(default=0, ge=0)
    """Hand-ins with their files, reports and grades, from the day they were handed in."""
    results_days: int = Field(default=0, ge=0)
    """What machines were sent and answered, from the day of the grade; report and grade stay."""
    trials_days: int = Field(default=90, ge=0)
    """What running work showed, so that grading it again need not run it again."""
    batches_days: int = Field(default=30, ge=0)
    """Class zips, from their upload; the hand-ins made of them stay."""
    audit_days: int = Field(default=0, ge=0)
    """Audit rows, except those of erasures."""
    messages_days: int = Field(default=30, ge=4)
    """Idempotency keys, ids of inbound webhooks and what was sent out: as long as repeats are recognised."""


class StageSettings(Value):
    """Bounds of one stage, for every machine."""

    budget_s: float = Field(default=600, gt=0)
    """Seconds a run may take on a machine, loading the model included."""
    max_output_tokens: int = Field(default=1200, ge=16, le=32768)
    """Tokens of the answer; the shares of its texts follow from it."""
    temperature: float = Field(default=0.3, ge=0, le=2)
    """Sampling temperature; 0 is the most repeatable."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Draw only from the likeliest tokens that together have this probability."""
    seed: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Makes drawing repeatable; some servers stop batching then: leave it out unless you need it."""


class Config(Value):
    """The whole of config.toml."""

    server: Server = Server()
    redis: Redis = Redis()
    database: Database = Database()
    retention: Retention = Retention()
    checks: Checks = Checks()
    gateway: Gateway = Gateway()
    mail: Mail = Mail()
    stages: dict[str, StageSettings] = Field(
        default_factory=lambda: {
            row.name: StageSettings(max_output_tokens=row.max_output_tokens) for row in STAGES.values()
        }
    )
    machines: tuple[Machine, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        for stage in (row.name for row in STAGES.values() if row.always):
            if stage not in self.stages:
                raise ValueError(f"stages.{stage}: this table is missing; every hand-in has this stage")
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
        names = ", ".join(machine.name for machine in self.machines)
        raise ConfigError(f"There is no machine '{name}' in the configuration; it has: {names}.")

    def with_engine(self, engine: str) -> Config:
        """The same machines with every stage on another in-process engine."""
        machines = [
            {**m.model_dump(), "stages": {s: {"engine": engine, "model": engine} for s in m.stages}}
            for m in self.machines
        ]
        return Config.model_validate({**self.model_dump(), "machines": machines})


def load(path: Path, environ: Mapping[str, str]) -> Config:
    """Read and validate a file; addresses in `environ` win over those in the file."""
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; give one with --config.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}.") from None
    raw = _with_addresses(raw, environ)
    config = parse(raw)
    for stage in config.stages:
        if not any(stage in machine.stages for machine in config.machines):
            raise ConfigError(f"stages.{stage}: no machine does this stage, so nothing could be graded")
        if all(machine.reserved for machine in config.machines if stage in machine.stages):
            raise ConfigError(
                f"stages.{stage}: all machines that do this stage are reserved, so hand-ins would wait"
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
