"""One generation that is alone and has a draft model: rounds of proposing and checking.

The tokens are those of the model alone: it computes every token itself, and a proposal only says for which
places it may do so in the same step. At a temperature each token is drawn from the model's own distribution.
A schema binds proposals and checks alike, token for token: each place has a constraint of its own, forked
from the one before, and what was not accepted is forgotten with its constraint.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from typing import Any

from workers.machine.engines.mlx.constraint import Constraint
from workers.machine.engines.mlx.generation import Sampler, Ticket
from workers.machine.engines.mlx.model import LoadedModel
from workers.machine.engines.mlx.prefix_caches import Layers, PrefixCaches

PLAIN, WINDOW = "KVCache", "RotatingKVCache"


def odd(layers: Layers) -> str:
    """The kind of a layer from which no token can be taken back; empty where there is none."""
    return next((type(one).__name__ for one in layers if type(one).__name__ not in (PLAIN, WINDOW)), "")


def rewind(layers: Layers, count: int) -> None:
    """Take back the last `count` tokens, fewer than the last step of the model took in at once.

    A window that has turned round cannot be rewound in general: mlx-lm refuses it. But a step over several
    tokens puts it in order and keeps all that the first of them sees, so its end can be cut off.
    """
    for layer in layers:
        if not count:
            return
        if type(layer).__name__ == WINDOW:
            keys, values, offset, keep, size, _ = layer.state
            keys, values = keys[..., :-count, :], values[..., :-count, :]
            layer.state = keys, values, offset - count, keep, size, keys.shape[2]
        else:
            layer.trim(count)


class CacheMark:
    """Where a cache stood, to go back to after single steps, which overwrite what a window forgets."""

    def __init__(self, layers: Layers) -> None:
        windows = any(type(one).__name__ == WINDOW for one in layers)
        # arrays are copied when they are written to
        self._copy: Layers | None = copy.deepcopy(layers) if windows else None
        self._layers = layers

    def back(self, steps: int, keep: int) -> tuple[Layers, int]:
        """The cache after `keep` of the `steps` single steps since the mark, or after fewer; and how many."""
        if self._copy is not None:
            return self._copy, 0
        rewind(self._layers, steps - keep)
        return self._layers, keep


def fresh(model: Any) -> Layers:
    """An empty cache of a model."""
    from mlx_lm.models.cache import make_prompt_cache

    layers: Layers = make_prompt_cache(model)
    return layers


CLEAR_EVERY = 256
"""Rounds after which the buffers that mlx keeps are given back, as mlx-lm does after steps."""


@dataclass(eq=False)
class Round:
    """What a round did: tokens proposed, those accepted, all it wrote, and where the seconds went."""

    proposed: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    draft_s: float = 0.0
    check_s: float = 0.0

    @property
    def accepted(self) -> int:
        """How many proposals were the model's own tokens."""
        return len(self.written) - 1


@dataclass(eq=False)
class DraftReader:
    """The draft model with its own cache: it must have read all that the model has."""

    loaded: LoadedModel
    prefixes: PrefixCaches
    step: int
    cache: Layers = field(init=False)
    have: int = 0
    """Tokens in its cache."""

    def __post_init__(self) -> None:
        self.cache = fresh(self.loaded.model)

    def read(self, ids: list[int], shared: int) -> tuple[int, int, float]:
        """Read on in a prompt and its answer, at most a chunk.

        Gives how many tokens it had, how many were read, and the seconds that took.
        """
        import mlx.core as mx

        prefix, key = tuple(ids[:shared]), id(self.loaded)
        if not self.have and prefix and (kept := self.prefixes.get(key, prefix)) is not None:
            self.cache, self.have = kept, shared
        since, had = time.monotonic(), self.have
        end = min(len(ids), had + self.step, shared if had < shared else len(ids))
        if end > had:
            self.loaded.model(mx.array(ids[had:end])[None], cache=self.cache)
            mx.eval([layer.state for layer in self.cache])
            self.have = end
            if end == shared and self.prefixes.takes(key, prefix):
                self.prefixes.keep(key, prefix, copy.deepcopy(self.cache))
        return had, end - had, time.monotonic() - since

    def next(self, ids: list[int]) -> Any:
        """Logits of shape (1, V) for what follows tokens that the cache does not have yet."""
        import mlx.core as mx

        logits = self.loaded.model(mx.array(ids)[None], cache=self.cache)[:, -1, :]
        self.have += len(ids)
        mx.async_eval(logits)  # type: ignore[no-untyped-call]  # runs while a mask is made
        return logits


class SoloGeneration:
    """A generation outside of the batch. `cache` has all of prompt and answer but the answer's last token."""

    def __init__(self, ticket: Ticket, reader: DraftReader, cache: Layers, sampler: Sampler) -> None:
        self.ticket = ticket
        self.reader = reader
        self.cache = cache
        self.sampler = sampler
        self._model = ticket.loaded
        self._rounds = 0

    @property
    def ids(self) -> list[int]:
        """Prompt and answer."""
        return [*self.ticket.prompt.ids, *self.ticket.output]

    @property
    def foreign(self) -> bool:
        """Whether there is a token that the draft model has no place for; it would crash the process."""
        return any(token >= self.reader.loaded.vocabulary for token in self.ids[self.reader.have :])

    def round(self, tokens: int) -> Round:
        """Propose so many tokens and check them. `written` may go on behind an end token."""
        import mlx.core as mx

        done, begun, last = Round(), time.monotonic(), self.ticket.output[-1]
        bounds: list[Constraint] = []
        masks: list[Any] = []
        mark = None
        feed = self.ids[self.reader.have :]
        while len(done.proposed) < tokens:
            logits = self.reader.next(feed)
            mark = mark or CacheMark(self.reader.cache)
            self._bind(bounds, masks, feed[-1])
            feed = [_likeliest(logits, masks, self._model.vocabulary)]
            done.proposed += feed
            if feed[0] in self._model.eos_ids or (bounds and bounds[-1].error):
                break
        now = time.monotonic()
        done.draft_s, begun = now - begun, now
        rows = self._model.model(mx.array([last, *done.proposed])[None], cache=self.cache)[0]
        mx.async_eval(rows)  # type: ignore[no-untyped-call]
        self._bind(bounds, masks, (done.proposed or [last])[-1])
        if masks:
            rows = mx.where(mx.array(_stacked(masks)), rows, -mx.inf)
        # randomness of its own is used up by tokens that are written only
        seeded = self.ticket.sampling.seed is not None
        logprobs = rows - mx.logsumexp(rows, axis=-1, keepdims=True)
        done.written = drawn(self.sampler, logprobs, done.proposed, one_by_one=seeded)
        self._keep(done, mark, bounds)
        done.check_s = time.monotonic() - begun
        return done

    def _bind(self, bounds: list[Constraint], masks: list[Any], token: int) -> None:
        """The constraint after one more token, and what it allows next."""
        if self.ticket.constraint is None:
            return
        bound = (bounds[-1] if bounds else self.ticket.constraint).fork()
        bound.take(token)
        masks.append(bound.allowed(self._model.vocabulary))
        bounds.append(bound)

    def _keep(self, done: Round, mark: CacheMark | None, bounds: list[Constraint]) -> None:
        """Bring both caches and the constraint to where the model now stands."""
        rewind(self.cache, len(done.proposed) - done.accepted)
        if bounds:
            self.ticket.constraint = bounds[done.accepted]
        if mark is not None:
            steps = len(done.proposed) - 1
            start = self.reader.have - steps
            self.reader.cache, kept = mark.back(steps, min(steps, done.accepted))
            self.reader.have = start + kept
        self._rounds += 1
        if self._rounds % CLEAR_EVERY == 0:
            import mlx.core as mx

            mx.clear_cache()


def drawn(sampler: Sampler, logprobs: Any, proposed: list[int], *, one_by_one: bool = False) -> list[int]:
    """The model's own tokens, up to the first that was not proposed.

    `logprobs` are its log probabilities of shape (proposals + 1, V), each row behind the proposals before it.
    """
    written: list[int] = []
    rows = [] if one_by_one else sampler(logprobs).tolist()
    for place, proposal in enumerate([*proposed, None]):
        token = int(sampler(logprobs[place : place + 1]).item()) if one_by_one else rows[place]
        written.append(token)
        if token != proposal:
            break
    return written


def _likeliest(logits: Any, masks: list[Any], width: int) -> int:
    """The token that a draft model proposes, one of those that model and schema know."""
    import mlx.core as mx

    logits = logits[:, :width]
    if masks:
        logits = mx.where(mx.array(masks[-1][: logits.shape[-1]])[None], logits, -mx.inf)
    likeliest: Any = mx.argmax(logits, axis=-1)
    return int(likeliest.item())


def _stacked(masks: list[Any]) -> Any:
    import numpy as np

    return np.stack(masks)
