"""Compose files as Compose reads them, with anchors, profiles and variables resolved."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def compose(file: Path, *arguments: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Compose on a file with these variables and none of this machine's own."""
    command = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
    given = {key: value for key, value in os.environ.items() if not key.startswith(("GRADER_", "COMPOSE_"))}
    return subprocess.run(
        [*command, "-f", file.name, *arguments],
        cwd=file.parent,
        env={**given, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def resolved(file: Path, *profiles: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """The services with these profiles, and those without any."""
    words = [part for name in profiles for part in ("--profile", name)]
    shown = compose(file, *words, "config", variables=variables)
    assert shown.returncode == 0, shown.stderr
    services: dict[str, Any] = yaml.safe_load(shown.stdout)["services"]
    return services
