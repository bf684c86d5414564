"""One generation on its way through the mlx thread: what is requested, how its caller waits, how it ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

from grading.domain.engine_details import Detail
from grading.domain.errors import BudgetExceeded, Cancelled, EngineError, OutputEndless
from grading.domain.jobs import Timings, Tokens
from workers.machine.engines.base import Cancel, Generation, Phase, Progress, Request
from workers.machine.engines.http.answer import MAX_TEXT_BYTES, PROGRESS_EVERY_S, wrote_something
from workers.machine.engines.mlx.constraint import Constraint
from workers.machine.engines.mlx.model import LoadedModel, Prompt
from workers.machine.engines.mlx.prefix_caches import Layers, Prefix
from workers.machine.messages import MODEL_WROTE_NOTHING, TEXT_TOO_LONG

Sampler = Callable[[Any], Any]
"""Takes log probabilities of shape (B, V), gives tokens of shape (B,)."""


@dataclass(frozen=True)
class Sampling:
    """What a request asks for. `top_p` None: all tokens; `seed` None: drawn from the common randomness."""

    temperature: float
    top_p: float | None = None
    seed: int | None = None


class Samplers:
    """Samplers for one batch; requests with the same wishes share one, and are sampled in one call."""

    def __init__(self) -> None:
        self._shared: dict[tuple[float, float | None], Sampler] = {}

    def sampler(self, wish: Sampling) -> Sampler:
        """One for a request."""
        if wish.seed is not None and wish.temperature > 0:
            return _seeded(wish.temperature, wish.top_p, wish.seed)
        key = (wish.temperature, wish.top_p)
        if key not in self._shared:
            from mlx_lm.sample_utils import make_sampler

            self._shared[key] = make_sampler(temp=wish.temperature, top_p=wish.top_p or 0.0)
        return self._shared[key]


def _seeded(temperature: float, top_p: float | None, seed: int) -> Sampler:
    """A sampler with randomness of its own, which nobody else in the batch uses up or resets."""
    import mlx.core as mx
    from mlx_lm.sample_utils import apply_top_p

    key = mx.random.key(seed % 2**64)

    def sample(logprobs: Any) -> Any:
        nonlocal key
        key, now = mx.random.split(key)
        if top_p is not None and 0 < top_p < 1:
            logprobs = apply_top_p(logprobs, top_p)
        return mx.random.categorical(logprobs * (1.0 / temperature), key=now)

    return sample


_T = TypeVar("_T")


class CallerWait:
    """One caller's waiting. `seconds` from now to the deadline; whatever it waits for calls `wake`."""

    def __init__(self, seconds: float, cancel: Cancel | None = None) -> None:
        self.begun = time.monotonic()
        self.deadline = self.begun + seconds
        self._seconds = seconds
        self._cancel = cancel or Cancel()
        self._woken = threading.Event()
        self._left = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Be woken when the generation is cancelled in the block; after it nobody waits, however it ended."""
        try:
            with self._cancel.on_cancel(self.wake):
                yield
        finally:
            self._left = True

    def wake(self) -> None:
        """Let the caller look again. From any thread."""
        self._woken.set()

    @property
    def over(self) -> bool:
        """Whether nobody waits any more."""
        return self._left or self._cancel.cancelled or time.monotonic() >= self.deadline

    def end(self, doing: str = "The model did not finish") -> BudgetExceeded | Cancelled:
        """The error for a caller whose waiting is over; `doing` begins the sentence about the deadline."""
        if self._cancel.cancelled:
            return Cancelled()
        return BudgetExceeded(f"{doing} within the {self._seconds:g} s of this job.")

    def sleep(self, seconds: float | None = None, doing: str = "The model did not finish") -> None:
        """Wait to be woken, at most `seconds`. Raises Cancelled or BudgetExceeded when it is over."""
        if self.over:
            raise self.end(doing)
        left = max(0.0, self.deadline - time.monotonic())
        self._woken.wait(left if seconds is None else min(left, seconds))
        self._woken.clear()

    def wait_for(self, future: Future[_T], doing: str) -> _T:
        """The result of a future. Raises what it raises, Cancelled or BudgetExceeded."""
        future.add_done_callback(lambda _: self.wake())
        while not future.done():
            self.sleep(doing=doing)
        return future.result()


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
    drafts: bool | None = None
    """Whether a draft model proposes; None: where it pays."""
    details: dict[str, Detail] = field(default_factory=dict)
    """What is reported at its end, by name."""
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


class Bound(Protocol):
    """What bound an answer to its schema."""

    @property
    def complete(self) -> bool:
        """Whether what was generated satisfies the schema."""

    @property
    def closed(self) -> bool:
        """Whether the token limit was near, so that something was cut off to end in time."""


class Watch:
    """One caller's view of its generation: tells phases as they come, tokens and draft now and then."""

    def __init__(self, ticket: Ticket, progress: Progress, *, draft: bool) -> None:
        self._ticket = ticket
        self._progress = progress
        self._draft = draft
        self._phases = 0
        self._told = 0
        self._next = time.monotonic() + PROGRESS_EVERY_S

    def wait(self, patience: CallerWait) -> str:
        """The finish reason. Raises what the generation ended with, Cancelled or BudgetExceeded."""
        done = self._ticket.done
        while not done.done():
            self._tell_phases()
            if time.monotonic() >= self._next:
                self._tell_tokens()
            patience.sleep(max(0.0, self._next - time.monotonic()))
        if done.cancelled():
            raise patience.end()
        reason = done.result()
        self._tell_phases()
        self._say(len(self._ticket.output))
        return reason

    def _tell_phases(self) -> None:
        for phase in self._ticket.phases[self._phases :]:
            self._phases += 1
            if phase != "generating":
                self._progress(0, phase)

    def _tell_tokens(self) -> None:
        self._next = time.monotonic() + PROGRESS_EVERY_S
        count = len(self._ticket.output)
        if not self._ticket.phases:
            self._progress(0, "queued")  # the thread is busy and has not even looked
        elif count != self._told:
            self._told = count
            self._say(count)

    def _say(self, count: int) -> None:
        if not self._draft:
            return self._progress(count)
        # a character may be unfinished
        text = self._ticket.loaded.decode(self._ticket.output[:count]).rstrip("\N{REPLACEMENT CHARACTER}")
        return self._progress(count, "generating", text)


def generation(
    ticket: Ticket, bound: Bound | None, request: Request, digest: str, reason: str, since: float
) -> Generation:
    """What a finished ticket says; `since` is when the caller came. Raises what the text forbids."""
    text = ticket.loaded.decode(ticket.output)
    truncated = reason == "length" and not (bound and bound.complete)
    wrote_something(MODEL_WROTE_NOTHING(), text, truncated=truncated)
    if len(text.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
        raise OutputEndless(TEXT_TOO_LONG(bytes=MAX_TEXT_BYTES))
    first = ticket.first_token
    return Generation(
        text=text,
        tokens=Tokens(prompt=len(ticket.prompt.ids), cached=ticket.cached, output=len(ticket.output)),
        first_token_s=first - since if first is not None else None,
        seconds=time.monotonic() - since,
        digest=digest,
        truncated=truncated,
        closed=bound is not None and bound.closed,
        sampling=_sampling(request, "json_schema_bound" if bound else "none"),
        timings=ticket.timings(since),
        details=ticket.details,
    )


def _sampling(request: Request, form: str) -> dict[str, Any]:
    asked = {"top_p": request.top_p, "seed": request.seed}
    return {
        "temperature": request.temperature,
        "max_tokens": request.max_output_tokens,
        "format": form,
        **{name: value for name, value in asked.items() if value is not None},
    }
