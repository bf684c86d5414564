"""A run in a machine's hands: the message that brought it, and how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from grading.jobs import Job
from workers.machine.engines.base import Cancel, Phase


@dataclass(frozen=True)
class Message:
    """The message that brought a run.

    `resend` sends it once more, to the queue of that name: the same run for the same chord, so it counts
    once, whoever does it. Raises one of AWAY.
    """

    home: str
    """The queue of its stage."""
    resend: Callable[[str], None]
    settled: bool = False
    """It was handed to this machine by another one, and is done here."""


@dataclass
class Working:
    """A run in this process's hands, and how far it is."""

    job: Job
    message: Message | None
    phase: str = "starting"
    tokens: int = 0
    prompt_tokens: int = 0
    draft: str = ""
    """What is written so far, where the student may see it."""
    cancel: Cancel = field(default_factory=Cancel)

    def prompted(self, tokens: int) -> None:
        """The prompt was rendered; its size is an estimate."""
        self.prompt_tokens = tokens

    def moved(self, tokens: int, phase: Phase = "generating", draft: str = "", /) -> None:
        """The engine tells."""
        self.tokens, self.phase, self.draft = tokens, phase, draft
