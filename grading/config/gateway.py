"""The `[gateway]` section of config.toml: what other tools may ask of the machines behind grading."""

from __future__ import annotations

from pydantic import Field

from grading.domain.value import Value


class Gateway(Value):
    """The door for a course's other tools: an OpenAI-compatible address, behind all grading."""

    enabled: bool = False
    """Machines answer what it asks when grading leaves them room; `grader up` starts it, too."""
    host: str = "127.0.0.1"
    """The address the gateway listens on."""
    port: int = Field(default=8100, ge=1, le=65535)
    """The port the gateway listens on."""
    max_tokens: int = Field(default=2048, ge=16, le=32768)
    """Tokens of an answer at most; also what a request gets that names no number."""
    limit_s: float = Field(default=300, ge=5, le=3600)
    """Seconds from a request to the end of its answer, waiting for a machine included."""
    at_once: int = Field(default=64, ge=1, le=1000)
    """Requests open at the same time, all tokens together."""
    per_token: int = Field(default=4, ge=1, le=1000)
    """Requests of one token open at the same time."""
    waiting: int = Field(default=32, ge=1, le=10_000)
    """Requests that may wait for the same model; more are answered 429."""
    max_body_kb: int = Field(default=512, ge=1, le=16_384)
    """The largest request, in KiB."""
