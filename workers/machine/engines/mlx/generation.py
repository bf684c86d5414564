"""One generation on its way through the mlx thread: what is asked, what happened, how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property

from grading.domain.errors import EngineError
from grading.domain.jobs import Speculative, Timings
from workers.machine.engines.base import Phase
from workers.machine.engines.mlx.constraint import Constraint
from workers.machine.engines.mlx.model import LoadedModel, Prompt
from workers.machine.engines.mlx.prefix_caches import Layers, Prefix
from workers.machine.engines.mlx.sampling import Sampling


@dataclass(eq=False)
class Ticket:
    """One generation on its way through the mlx thread. Times are of `time.monotonic`."""

    loaded: LoadedModel
    prompt: Prompt
    max_tokens: int
    sampling: Sampling
    constraint: Constraint | None
    over: Callable[[], bool]
    """Whether nobody waits for it any more."""
    wake: Callable[[], None]
    """Called when there is something to tell: a phase or the end."""
    warm: tuple[Layers, int] | None = None
    """The cache of so many first tokens, where another machine read them."""
    stage: str = ""
    speculative: Speculative | None = None
    """Of a model with a draft model, at its end: what that was good for."""
    done: Future[str] = field(default_factory=Future)
    """The finish reason, or an EngineError; cancelled when it was dropped because nobody waits."""
    phases: list[Phase] = field(default_factory=list)
    """What happened to it so far, in order."""
    output: list[int] = field(default_factory=list)
    cached: int = 0
    submitted: float = field(default_factory=time.monotonic)
    admitted: float | None = None
    first_token: float | None = None
    ended: float | None = None

    @cached_property
    def prefix(self) -> Prefix:
        """The shared tokens; none of a prompt that was read already."""
        return () if self.warm else tuple(self.prompt.ids[: self.prompt.shared])

    def timings(self, since: float) -> Timings:
        """Where the seconds of a finished generation went; its caller came at `since`."""
        if self.admitted is None or self.first_token is None or self.ended is None:
            return Timings()
        return Timings(
            load_s=self.submitted - since,
            queued_s=self.admitted - self.submitted,
            prompt_s=self.first_token - self.admitted,
            output_s=self.ended - self.first_token,
        )

    def tell(self, phase: Phase) -> None:
        """Say that a phase begins; the same one twice is said once."""
        if not self.phases or self.phases[-1] != phase:
            self.phases.append(phase)
            self.wake()

    def end(self, how: str | EngineError | None) -> None:
        """The finish reason, an error, or None for one that was dropped."""
        self.ended = time.monotonic()
        if how is None:
            self.done.cancel()
        elif isinstance(how, str):
            self.done.set_result(how)
        else:
            self.done.set_exception(how)
        self.wake()
