"""The program of a rank: loads its part of the model and takes the steps it is told, as all others do.

Told on standard input, says on standard output; see `protocol`. It ends when its standard input does.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import BinaryIO

from grading.domain.errors import EngineError
from workers.machine.engines.mlx.constraint import Constraint
from workers.machine.engines.mlx.decode_loop import IDLE_S, Counters, DecodeLoop, Shape, attempt, clear_memory
from workers.machine.engines.mlx.generation import Sampling, Ticket
from workers.machine.engines.mlx.model import LoadedModel, Prompt, model_digest
from workers.machine.engines.mlx.prefix_caches import Layers, Prefix, PrefixCaches
from workers.machine.engines.sharded.loading import join, load_part, software
from workers.machine.engines.sharded.protocol import (
    DROPPED,
    FAILED,
    Add,
    Begin,
    Done,
    Failed,
    FromRank,
    Here,
    Load,
    News,
    Ready,
    Step,
    ToRank,
    line,
    to_rank,
)


class TokenPrefixes(PrefixCaches):
    """Caches by exact prefix; when they have more than `most` tokens together, the least used goes."""

    @property
    def held_bytes(self) -> int:
        """What they take in this rank."""
        return sum(layer.nbytes for layers, _ in self._kept.values() for layer in layers)

    def _size(self, prefix: Prefix, layers: Layers) -> int:
        return len(prefix)


log = logging.getLogger(__name__)
Inbox = queue.SimpleQueue[ToRank]
Say = Callable[[FromRank], None]


class RankLoop:
    """A loop that is played by the steps all ranks are told."""

    def __init__(self, begin: Begin, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._counters = Counters()
        self._counted = self._counters.read()
        self._prefixes = TokenPrefixes(begin.prefix_tokens)
        shape = Shape(begin.slots, begin.prefill_step, begin.wired_limit)
        self._loop = DecodeLoop(loaded, shape, self._prefixes, self._counters)
        self._live: dict[int, _Part] = {}
        self._dropped: set[int] = set()

    def step(self, step: Step) -> Done:
        """Take a step; what it brought. Raises EngineError when this rank's batch broke."""
        refused = [refusal for add in step.add if (refusal := self._add(add)) is not None]
        self._dropped.update(step.drop)
        if (error := attempt(self._loop.step)) is not None:
            raise error
        news = refused + [told for part in self._live.values() if (told := part.news()) is not None]
        for one in news:
            if one.end:
                self._live.pop(one.id, None)
        self._dropped.intersection_update(self._live)
        return Done(
            number=step.number,
            news=tuple(news),
            counts=self._counts(),
            cache_bytes=self._prefixes.held_bytes,
        )

    def _add(self, add: Add) -> News | None:
        constraint: list[Constraint] = []
        if add.schema_text and (error := attempt(lambda: constraint.append(self._constraint(add)))):
            return News(id=add.id, end=FAILED, error=error.message)
        ticket = Ticket(
            loaded=self._loaded,
            prompt=Prompt(list(add.ids), add.shared),
            max_tokens=add.max_tokens,
            sampling=Sampling(add.temperature, add.top_p, add.seed),
            constraint=constraint[0] if constraint else None,
            over=lambda: add.id in self._dropped,
            wake=lambda: None,
        )
        self._live[add.id] = _Part(add.id, ticket)
        self._loop.add(ticket)
        return None

    def _constraint(self, add: Add) -> Constraint:
        if self._loaded.grammars is None:
            raise EngineError("The tokenizer of this model does not support constrained decoding.")
        return self._loaded.grammars.constraint(json.loads(add.schema_text), add.max_tokens)

    def _counts(self) -> dict[str, int]:
        """What came to the counters since they were told last."""
        before, self._counted = self._counted, self._counters.read()
        return {name: int(now - before[name]) for name, now in self._counted.items() if now != before[name]}


class _Part:
    """A ticket and how much of it was told."""

    def __init__(self, number: int, ticket: Ticket) -> None:
        self._number = number
        self._ticket = ticket
        self._phases = self._tokens = 0

    def news(self) -> News | None:
        """What is new of it, if anything is."""
        ticket = self._ticket
        phases, tokens = ticket.phases[self._phases :], ticket.output[self._tokens :]
        end, error = _end(ticket)
        if not (phases or tokens or end):
            return None
        self._phases += len(phases)
        self._tokens += len(tokens)
        bound = ticket.constraint if end and end not in (DROPPED, FAILED) else None
        return News(
            id=self._number,
            phases=tuple(phases),
            tokens=tuple(tokens),
            cached=ticket.cached,
            end=end,
            error=error,
            complete=bound is not None and bound.complete,
            closed=bound is not None and bound.closed,
        )


def _end(ticket: Ticket) -> tuple[str, str]:
    """How it ended, and why if it failed."""
    if not ticket.done.done():
        return "", ""
    if ticket.done.cancelled():
        return DROPPED, ""
    failed = ticket.done.exception()
    return (ticket.done.result(), "") if failed is None else (FAILED, str(failed))


def play(inbox: Inbox, say: Say) -> None:
    """The life of a rank. Raises EngineErrors; ends by itself only when the process does."""
    begin = inbox.get()
    if not isinstance(begin, Begin):
        raise EngineError("The first message to a rank must assign its number.")
    say(Here(digest=model_digest(begin.model), software=software(), pid=os.getpid()))
    if not isinstance(inbox.get(), Load):
        raise EngineError("A rank must load the model before it runs steps.")
    player: list[RankLoop] = []
    if (error := attempt(lambda: player.append(_open(begin, say)))) is not None:
        raise error
    while True:
        step = _next(inbox)
        if not isinstance(step, Step):
            raise EngineError("A rank that plays can only be told to take steps.")
        say(player[0].step(step))


def _open(begin: Begin, say: Say) -> RankLoop:
    group = join(begin.rank, begin.hosts)
    loaded, mode = load_part(begin.model, begin.mode, group, begin.max_context)
    import mlx.core as mx

    mx.random.seed(begin.seed)
    player = RankLoop(begin, loaded)
    say(Ready(mode=mode))
    return player


def _next(inbox: Inbox) -> ToRank:
    """The next word, whenever it comes; before a long wait, spare memory is given back."""
    try:
        return inbox.get(timeout=IDLE_S)
    except queue.Empty:
        clear_memory()
        return inbox.get()


def _listen(inbox: Inbox) -> None:
    """Take what is told, at all times; the end of it is the end of this process, whatever it does."""
    try:
        for said in sys.stdin.buffer:
            inbox.put(to_rank(said))
    finally:
        os._exit(0)


def _speak(output: BinaryIO, word: FromRank) -> None:
    output.write(line(word))
    output.flush()


def main() -> None:
    """Run a rank until its standard input ends."""
    inbox: Inbox = queue.SimpleQueue()
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not come between the words
    threading.Thread(target=_listen, args=(inbox,), name="lifeline", daemon=True).start()
    say = partial(_speak, output)
    try:
        play(inbox, say)
    except EngineError as error:
        say(Failed(code=error.code, message=error.message))
    except Exception as error:
        log.exception("a rank failed")  # the worker hears of it, whatever it is
        say(Failed(code=EngineError.code, message=f"It failed: {type(error).__name__}: {error}"))
    finally:
        os._exit(1)  # mlx aborts when its threads outlive the interpreter


if __name__ == "__main__":
    main()
