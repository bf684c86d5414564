"""A run in a machine's hands: the message that brought it, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from grading.domain.jobs import Job
from workers.machine.engines.base import Cancel, Phase


@dataclass(frozen=True)
class Message:
    """The message that brought a run.

    `resend` has the server send it once more, to the queue of that name: the same run, so it counts once,
    whoever does it. Raises one of AWAY.
    """

    home: str
    """The queue of its stage."""
    resend: Callable[[str], None]
    settled: bool = False
    """It was handed to this machine by another one, and is done here."""


@dataclass(eq=False)
class RunInHand:
    """A run in this process's hands, and how far it is. `changed` is called when that changes."""

    job: Job
    message: Message | None
    phase: str = "starting"
    begun: float = field(default_factory=time.monotonic)
    tokens: int = 0
    prompt_tokens: int = 0
    draft: str = ""
    """What is written so far, as the engine gave it; only where the student may see it."""
    changed: Callable[[], None] = lambda: None
    cancel: Cancel = field(default_factory=Cancel)
    leased: bool = True
    """Redis knows that it is done here; False when Redis was away at its claim."""
    taken_away: bool = False
    """Others have the run, or nobody waits for it any more."""
    handed_back: bool = False
    """This process ends, and the message goes back to its queue."""
    unserved: bool = False
    """Its engine went away before it was begun, or it gives way to grading; the message goes back."""
    noted: bool = False
    """What moved will be told in any case: `changed` need not be called for more of the same."""

    @property
    def state(self) -> tuple[str, int, int, str]:
        """All that is told of it."""
        return self.phase, self.tokens, self.prompt_tokens, self.draft

    def prompted(self, tokens: int) -> None:
        """The prompt was rendered; its size is an estimate."""
        self.prompt_tokens = tokens
        self._note()

    def moved(self, tokens: int, phase: Phase = "generating", draft: str = "", /) -> None:
        """The engine tells. Never waits."""
        another = phase != self.phase
        self.tokens, self.phase = tokens, phase
        if self.job.draft:
            self.draft = draft
        self._note(now=another)

    def _note(self, *, now: bool = False) -> None:
        if now or not self.noted:
            self.noted = True
            self.changed()

    def take_away(self) -> None:
        """Nobody waits for it here any more: the engine ends it at once."""
        self.taken_away = True
        self.cancel.cancel()
