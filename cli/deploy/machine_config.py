"""What a machine is told: the part of config.toml that it needs, what of it its worker uses, its secrets."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from cli.deploy.ssh import MachineError
from grading.config.settings import Config, Machine, Redis

SHARED = ("redis", "stages", "gateway")
"""Tables that every worker reads."""
OF_OTHERS = ("name", "stages", "reserved")
"""What a machine is told of the others: that they are there, and what they do."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def config_for(name: str, path: Path, ca_file: str | None) -> str:
    """The config.toml of a machine, with the certificate authority's file where it lies over there."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    tables = {key: dict(raw[key]) for key in SHARED if key in raw}
    tables.get("redis", {}).pop("url", None)  # it may hold a password, and is in grader.env
    if ca_file:
        tables["redis"] = {**tables.get("redis", {}), "ca_file": ca_file}
    lines = [f"# The part of the server's config.toml that {name} needs; `grader deploy` writes it.\n"]
    for key, table in tables.items():
        lines.append(f"[{key}]\n{_rows(table)}")
    for machine in raw["machines"]:
        kept = (
            {key: value for key, value in machine.items() if key != "ssh"}
            if machine["name"] == name
            else {key: machine[key] for key in OF_OTHERS if key in machine}
        )
        lines.append(f"[[machines]]\n{_rows(kept)}")
    return "\n".join(lines)


def authority(ca_file: str) -> str:
    """The certificate authority's file. MachineError when it cannot be read."""
    try:
        return Path(ca_file).read_text(encoding="utf-8")
    except OSError as error:
        raise MachineError(f"redis.ca_file: {ca_file} cannot be read: {error.strerror}.") from None


def used_by(name: str, config: Config) -> str:
    """The values that the services of a machine use: the same however they are written."""
    values = {
        "machine": config.machine(name).model_dump(mode="json", exclude={"ssh"}),
        "machines": sorted(machine.name for machine in config.machines),
        "redis": config.redis.model_dump(mode="json", exclude={"url", "ca_file"}),
        "stages": list(config.stages),
        "gateway": config.gateway.enabled,
    }
    return json.dumps(values, indent=1, sort_keys=True)


def secrets_for(
    machine: Machine, path: Path, host: str, environ: Mapping[str, str], there: Container[str]
) -> dict[str, str]:
    """A machine's own variables; those that are not given here stay as they are over there.

    `there` are the names of those that it has. Raises MachineError.
    """
    found = {"GRADER_REDIS_URL": _redis(machine, path, host, environ, there)}
    for engine in machine.engines.values():
        key = engine.options.get("api_key_env")
        if isinstance(key, str):
            found[key] = variable(key, machine, environ)
            if not found[key] and key not in there:
                raise MachineError(f"{machine.name} needs {key}. Set it here and deploy again.")
    if machine.prefill or "hybrid" in machine.kinds:
        found.update(_prefill_secret(machine, environ, there))
    return {name: value for name, value in found.items() if value}


def _prefill_secret(machine: Machine, environ: Mapping[str, str], there: Container[str]) -> dict[str, str]:
    """The secret that prefill servers and `hybrid` engines share."""
    try:
        from workers.machine.engines.remote_prefill import protocol
    except ModuleNotFoundError as error:
        raise MachineError(f"{machine.name} uses remote prefill, which is not installed here.") from error
    found = {protocol.SECRET_VARIABLE: variable(protocol.SECRET_VARIABLE, machine, environ)}
    if found[protocol.SECRET_VARIABLE] or protocol.SECRET_VARIABLE not in there:
        protocol.secret(found)
    return found


def _redis(machine: Machine, path: Path, host: str, environ: Mapping[str, str], there: Container[str]) -> str:
    kept = "GRADER_REDIS_URL" in there
    written = str(tomllib.loads(path.read_text(encoding="utf-8")).get("redis", {}).get("url", ""))
    url = variable("GRADER_REDIS_URL", machine, environ) or ("" if kept else written or Redis().url)
    if url and urlsplit(url).hostname in LOOPBACK and host not in LOOPBACK:
        if not kept:
            raise MachineError(
                f"{machine.name} would connect to Redis on itself. Set {_own('GRADER_REDIS_URL', machine)} "
                "to the Redis URL as that machine sees it, rediss://USER:PASSWORD@SERVER:6379/0."
            )
        return ""
    if url:
        try:
            Redis(url=url)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise MachineError(f"GRADER_REDIS_URL for {machine.name}: {reason}.") from None
    return url


def variable(name: str, machine: Machine, environ: Mapping[str, str]) -> str:
    """A variable of this computer, the machine's own first."""
    return environ.get(_own(name, machine)) or environ.get(name, "")


def _own(name: str, machine: Machine) -> str:
    return f"{name}_{machine.name.upper().replace('-', '_')}"


def _rows(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _value(value: Any) -> str:
    """A value as TOML has it, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(one) for one in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(value) if isinstance(value, str) else str(value)


def _text(text: str) -> str:
    # both escape alike but for DEL, which TOML does not take as it is
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
