"""When a run that a live machine holds counts as stalled: limits by what the machine says it does."""

from __future__ import annotations

import math

LOADING_S = 300.0
"""A model of 60 GB from a slow disk."""
CHUNK_S = 60.0
"""Between two tokens while no other run moves; before the first it comes on top of the prompt's time."""
SLOWEST_PREFILL = 25.0
"""Prompt tokens a second: a large dense model that reads eight prompts at once."""
WAITING_S = 7200.0
"""For its turn, behind others that all have limits: only a run that nobody has any more waits longer.

In an engine's own queue the run's budget goes on, and ends it before."""
MARGIN_S = 15.0
"""Machines tell every 3 s, and their engines' own limits should speak first: they know more."""


def limit_s(phase: str, prompt_tokens: int, others_idle_s: float = math.inf) -> float:
    """Seconds without any movement after which a run in this phase is stalled.

    `others_idle_s` is how long no other run of its process has moved: reading prompts of a whole batch
    holds up those that write already.
    """
    if phase in ("waiting", "queued"):
        return WAITING_S
    if phase == "reading":
        return MARGIN_S + CHUNK_S + prompt_tokens / SLOWEST_PREFILL
    return MARGIN_S + (CHUNK_S if phase == "generating" and others_idle_s > CHUNK_S else LOADING_S)


def stalled(
    phase: str,
    prompt_tokens: int,
    idle_s: float,
    age_s: float,
    budget_s: float,
    others_idle_s: float = math.inf,
) -> bool:
    """Whether a run has not moved for longer than it may, or is far over its time budget. Seconds."""
    over = phase != "waiting" and age_s > budget_s + CHUNK_S + MARGIN_S
    return over or idle_s > limit_s(phase, prompt_tokens, others_idle_s)
