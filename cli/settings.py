"""What every command starts from: the configuration and the secrets of this installation."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from grading.config import settings
from grading.config.settings import Config
from grading.domain.errors import ConfigError

MIN_SECRET = 16
OWN_REDIS = "redis_url"
OWN_FOLDER = "var"
"""Where generated secrets and a Redis of our own are kept unless --var names another folder."""


@dataclass(frozen=True)
class Settings:
    """The path of the configuration; everything is read when it is first asked for."""

    path: Path

    @cached_property
    def config(self) -> Config:
        """The validated configuration, with addresses from the environment."""
        return settings.load(self.path, os.environ)

    @cached_property
    def running(self) -> Config:
        """The configuration with the Redis that `grader up` started in var, or GRADER_REDIS_URL."""
        own = not os.environ.get("GRADER_REDIS_URL")
        return with_own_redis(self.config, Path(OWN_FOLDER)) if own else self.config

    def with_engine(self, engine: str | None) -> Config:
        """The configuration, all stages on another engine if one is named."""
        return self.config.with_engine(engine) if engine else self.config


def secret_key(folder: Path) -> str:
    """GRADER_SECRET_KEY, else a key made at first start and kept in `folder`, readable by its owner only."""
    value = os.environ.get("GRADER_SECRET_KEY")
    if value:
        if len(value) < MIN_SECRET:
            raise ConfigError(f"GRADER_SECRET_KEY: needs at least {MIN_SECRET} characters.")
        return value
    path = folder / "secret_key"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        _make_key(path)
    key = path.read_text(encoding="ascii").strip()
    if len(key) < MIN_SECRET:
        raise ConfigError(f"{path} holds no key; remove it, and a new one is made.")
    return key


def _make_key(path: Path) -> None:
    """Write a new key; it appears whole or not at all, and the first of several processes wins."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()


def remember_redis(folder: Path, url: str) -> None:
    """Keep the address of a Redis of our own beside it, for other commands here; for its owner only."""
    forget_redis(folder)
    handle = os.open(folder / OWN_REDIS, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(url)


def forget_redis(folder: Path) -> None:
    """It has ended."""
    (folder / OWN_REDIS).unlink(missing_ok=True)


def with_own_redis(config: Config, folder: Path) -> Config:
    """The configuration with the Redis that `grader up` started here, if it did."""
    try:
        url = (folder / OWN_REDIS).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return config
    if not url:
        return config
    return config.model_copy(update={"redis": config.redis.model_copy(update={"url": url})})


def lms_secrets(config: Config, environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The secrets of LMS connections in GRADER_LMS_<NAME>_SECRET, several with spaces between.

    A connection may have none there: `grader webhook secret add` makes others, which are in the database.
    """
    names = config.server.lms_connections
    return {name: tuple(environ.get(_variable("LMS", name), "").split()) for name in names}


def event_secrets(config: Config, environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The secrets of each receiver of events: GRADER_EVENTS_<NAME>_SECRET, several with spaces between."""
    names = [receiver.name for receiver in config.server.event_receivers]
    return _secrets("server.event_receivers", "EVENTS", names, environ)


def mail_password(config: Config, environ: Mapping[str, str]) -> str:
    """GRADER_MAIL_PASSWORD; empty where nobody signs in to the mail server. Raises ConfigError without it."""
    password = environ.get("GRADER_MAIL_PASSWORD", "")
    if config.mail.user and not password:
        raise ConfigError("mail.url: its user needs GRADER_MAIL_PASSWORD in the environment.")
    return password if config.mail.user else ""


def _variable(prefix: str, name: str) -> str:
    return f"GRADER_{prefix}_{name.upper().replace('-', '_')}_SECRET"


def _secrets(
    key: str, prefix: str, names: Iterable[str], environ: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    found = {}
    for name in names:
        variable = _variable(prefix, name)
        value = environ.get(variable, "").split()
        if not value:
            raise ConfigError(f"{key}: '{name}' needs {variable} in the environment.")
        found[name] = tuple(value)
    return found
