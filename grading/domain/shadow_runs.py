"""Shadow runs: runs of a stage on work that is graded already, whose results count for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from grading.domain.base_value import Value
from grading.domain.jobs import MOST_TOKENS, Result, Tokens
from grading.domain.rubric import MAX_LEVEL


class ShadowOutcome(Value):
    """What a machine reports of a shadow run: how it graded, not what it wrote."""

    ok: bool
    error: str = ""
    """Code of why it failed; `work` and `time` are no failures: other work came, or the time was over."""
    message: str = Field(default="", max_length=300)
    levels: dict[str, Annotated[int, Field(ge=0, le=MAX_LEVEL)]] = Field(default_factory=dict)
    """Criterion -> level."""
    confidence: dict[str, Annotated[int, Field(ge=0, le=100)]] = Field(default_factory=dict)
    """Criterion -> the model's own confidence in percent, where it reports one."""
    flags: tuple[str, ...] = ()
    engine: str = ""
    model: str = ""
    digest: str = ""
    prompt_version: str = ""
    prompt_hash: str = ""
    context_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS)
    """What a model of the stage reads and writes at most, as the machine has it; 0 where that is unknown."""
    tokens: Tokens = Tokens()
    repaired: bool = False
    seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @property
    def put_off(self) -> bool:
        """Whether it is to be done later, which is no failure."""
        return self.error in ("work", "time")


def outcome_of(result: Result, context_tokens: int) -> ShadowOutcome:
    """What is kept of a run's result."""
    how = result.provenance
    judged = [one for one in result.output.get("judgements", ()) if isinstance(one, Mapping)]
    return ShadowOutcome(
        ok=result.ok,
        error=result.error or "",
        message=result.message[:300],
        levels={one["criterion"]: one["level"] for one in judged},
        confidence={
            one["criterion"]: one["confidence"] for one in judged if one.get("confidence") is not None
        },
        flags=tuple(sorted({flag.code for flag in result.flags})),
        engine=how.engine,
        model=how.model,
        digest=how.digest,
        prompt_version=how.prompt_version,
        prompt_hash=how.prompt_hash,
        context_tokens=context_tokens,
        tokens=how.tokens,
        repaired=how.repaired,
        seconds=how.seconds,
    )
