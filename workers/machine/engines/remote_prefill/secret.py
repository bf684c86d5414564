"""What both sides know, from the environment."""

from __future__ import annotations

from collections.abc import Mapping

from grading.domain.errors import ConfigError

NAME = "GRADER_PREFILL_SECRET"
LEAST = 16
"""Characters at the least."""


def secret(environ: Mapping[str, str]) -> bytes:
    """The secret. Raises ConfigError when it is missing or short."""
    said = environ.get(NAME, "")
    if len(said) < LEAST:
        raise ConfigError(f"{NAME} must be set to the same {LEAST} or more characters on both machines.")
    return said.encode()
