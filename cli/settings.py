"""What every command starts from: the configuration and the secrets of this installation."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click

from grading.config import settings
from grading.config.settings import Config
from grading.domain.errors import ConfigError

MIN_SECRET = 16
KEPT_KEY = "secret_key"
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


def complete_machine(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The machines of config.toml that begin with `incomplete`, for completion in a shell."""
    try:
        config = Settings(context.find_root().params["config_path"]).config
    except ConfigError:
        return []
    return [machine.name for machine in config.machines if machine.name.startswith(incomplete)]


def secret_key(folder: Path) -> str:
    """GRADER_SECRET_KEY, else the key that `grader up` keeps in `folder`. Raises ConfigError without either.

    None is made: a second server, or a second folder, would sign with another one than the first.
    """
    value, path = os.environ.get("GRADER_SECRET_KEY"), folder / KEPT_KEY
    if value:
        if len(value) < MIN_SECRET:
            raise ConfigError(f"GRADER_SECRET_KEY: use at least {MIN_SECRET} characters.")
        return value
    try:
        key = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise ConfigError(
            f"GRADER_SECRET_KEY is not set. Set it to at least {MIN_SECRET} random characters, the same for "
            "every web app and for `grader webhook secret add`, such as the output of `openssl rand -hex 24`."
        ) from None
    if len(key) < MIN_SECRET:
        raise ConfigError(f"{path} contains no key. Remove it and set GRADER_SECRET_KEY.")
    return key


def own_secret_key(folder: Path) -> tuple[str, bool]:
    """For `grader up` and `grader demo`: the key, and whether it was made now and kept in `folder`."""
    path = folder / KEPT_KEY
    folder.mkdir(parents=True, exist_ok=True)
    made = not os.environ.get("GRADER_SECRET_KEY") and not path.exists()
    if made:
        _make_key(path)
    return secret_key(folder), made


def key_fingerprint(key: str) -> str:
    """Tells one secret key from another to those who compare them, and nothing of either."""
    return hmac.new(key.encode(), b"which secret key is this", hashlib.sha256).hexdigest()[:8]


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


def sign_on_secrets(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    """The client secret of each provider of single sign-on: GRADER_SIGN_ON_<NAME>_SECRET.

    Raises ConfigError without one.
    """
    return {name: sign_on_secret(name, environ) for name in config.sign_on.providers}


def sign_on_secret(name: str, environ: Mapping[str, str]) -> str:
    """The client secret of one provider. Raises ConfigError without it."""
    secret = environ.get(_variable("SIGN_ON", name), "")
    if not secret:
        raise ConfigError(
            f"sign_on.providers.{name}: set {_variable('SIGN_ON', name)} in the environment to the client "
            "secret that the provider issued."
        )
    return secret


def mail_password(config: Config, environ: Mapping[str, str]) -> str:
    """GRADER_MAIL_PASSWORD; empty where nobody signs in to the mail server. Raises ConfigError without it."""
    password = environ.get("GRADER_MAIL_PASSWORD", "")
    if config.mail.user and not password:
        raise ConfigError("mail.url: for its user, set GRADER_MAIL_PASSWORD in the environment.")
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
            raise ConfigError(f"{key}: for '{name}', set {variable} in the environment.")
        found[name] = tuple(value)
    return found
