"""A model's batch that writes with a draft model while a generation is alone in it.

Every generation begins in the batch, as without a draft model. When it is alone and has written a few
tokens, and the planner expects it to end sooner with drafts, it leaves the batch for rounds of its own. When
another one comes, or drafts turn out not to pay, it joins the batch again before the next step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from grading.domain.engine_details import Detail, Measurement
from grading.domain.errors import ConfigError, EngineError, ModelMissing
from grading.domain.messages import Message
from workers.machine.engines.base import Metric
from workers.machine.engines.mlx.decode_loop import Counters, DecodeLoop, DecodeLoops, Shape
from workers.machine.engines.mlx.generation import Ticket
from workers.machine.engines.mlx.model import LoadedModel, load_model
from workers.machine.engines.mlx.prefix_caches import PrefixCaches
from workers.machine.engines.speculative import planner
from workers.machine.engines.speculative.draft_rounds import DraftReader, Round, SoloGeneration, fresh, odd
from workers.machine.engines.speculative.messages import (
    BUSY,
    CONFIGURED,
    DETAIL,
    FOREIGN,
    REQUESTED,
    SHORT,
)
from workers.machine.engines.speculative.planner import Choice, ModelSpeeds, StageStatistics, Work

LOOK_EVERY = 16
"""Rounds until it is asked again whether drafts pay."""


@dataclass(eq=False)
class DraftStatistics:
    """What is known of a model and its draft model; by stage where answers differ. Of the mlx thread."""

    speeds: ModelSpeeds = field(default_factory=ModelSpeeds)
    habits: dict[str, StageStatistics] = field(default_factory=dict)

    def of(self, stage: str) -> StageStatistics:
        """What is known of a stage's answers."""
        return self.habits.get(stage, StageStatistics())


@dataclass(frozen=True)
class DraftModel:
    """The draft model of a model, and what was learned of both."""

    name: str
    loaded: LoadedModel
    longest: int
    learned: DraftStatistics
    always: bool = False
    """Whatever it takes."""


@dataclass(eq=False)
class DraftTrace:
    """What happened to one generation here, for its account."""

    why: Message = field(default_factory=SHORT)
    expected_s: Mapping[str, float] = field(default_factory=dict)
    predicted: float | None = None
    """Seconds a token of rounds."""
    decided: bool = False
    """It does not leave the batch any more while it is alone."""
    steps: int = 0
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    read_s: float = 0.0
    draft_s: float = 0.0
    check_s: float = 0.0
    reader: DraftReader | None = None

    @property
    def token_s(self) -> float | None:
        """Seconds a token of rounds took, each of which wrote one that was not proposed."""
        return (self.draft_s + self.check_s) / (self.accepted + self.rounds) if self.rounds else None

    def detail(self, draft: str) -> Detail:
        """What the result reports of it."""
        expected = {"expected_s": "speculative", "expected_direct_s": "direct"}
        seconds = {name: self.expected_s[way] for name, way in expected.items() if way in self.expected_s}
        seconds |= {"read_s": self.read_s, "draft_s": self.draft_s, "check_s": self.check_s}
        counts = {"proposed": self.proposed, "accepted": self.accepted}
        return Detail(
            strategy="speculative" if self.rounds else "direct",
            reason=self.why,
            values={
                "draft_model": Measurement(value=draft[-200:]),
                "rounds": Measurement(value=self.rounds),
                **{name: Measurement(value=count, unit="tokens") for name, count in counts.items()},
                **{name: Measurement(value=value, unit="s") for name, value in seconds.items()},
            },
        )


class DraftDecodeLoop(DecodeLoop):
    """See the module. Used on the mlx thread only, but for `running` and `waiting`."""

    def __init__(
        self, loaded: LoadedModel, draft: DraftModel, shape: Shape, prefixes: PrefixCaches, counters: Counters
    ) -> None:
        super().__init__(loaded, shape, prefixes, counters)
        self._draft = draft
        self._solo: SoloGeneration | None = None
        self._stories: WeakKeyDictionary[Ticket, DraftTrace] = WeakKeyDictionary()
        self._tokens = 0
        self._learning = False

    def add(self, ticket: Ticket) -> None:
        """Take a generation; see `DecodeLoop`."""
        self._stories[ticket] = DraftTrace()
        super().add(ticket)

    def step(self) -> None:
        """A step of the batch, or a round, or a chunk for the draft model to read."""
        if self._solo is not None and (self._queue or self._solo.ticket.over()):
            self._join(self._solo, BUSY())
        if self._solo is not None:
            self._go_on(self._solo)
            return
        written = {ticket: len(ticket.output) for ticket in self._running.values()}
        since = time.monotonic()
        super().step()
        self._after(written, time.monotonic() - since)

    def close(self) -> None:
        """Give back what the batch and the draft model hold."""
        super().close()
        self._prefixes.forget(id(self._draft.loaded))

    # --- in the batch -------------------------------------------------------------------------------

    def _after(self, written: Mapping[Ticket, int], seconds: float) -> None:
        """A step of the batch took so long: learn from one of a single generation, and let it leave."""
        if len(self._running) > 1 or self._queue:
            for ticket in self._running.values():
                story = self._stories[ticket]
                story.decided, story.steps = False, 0
                if not story.rounds:
                    story.why, story.expected_s = BUSY(), {}
            return
        for uid, ticket in self._running.items():
            story = self._stories[ticket]
            if len(written) == 1 and len(ticket.output) > written.get(ticket, len(ticket.output)):
                story.steps += 1
                if story.steps > 1:  # the first one is not a step alone
                    speeds = self._draft.learned.speeds
                    self._draft.learned.speeds = replace(speeds, plain=speeds.plain.seen(seconds))
            if story.steps > planner.FEW and not story.decided:
                self._decide(uid, ticket, story)
                break

    def _decide(self, uid: int, ticket: Ticket, story: DraftTrace) -> None:
        story.decided = True
        choice = self._choice(ticket, story)
        story.predicted = choice.token_s
        if choice.tokens:
            self._leave(uid, ticket, story, choice)

    def _choice(self, ticket: Ticket, story: DraftTrace) -> Choice:
        read = len(ticket.prompt.ids) + len(ticket.output) - 1
        have = story.reader.have if story.reader else self._known(ticket)
        written, learned = len(ticket.output), self._draft.learned
        work = Work(have, read - have, written, ticket.max_tokens - written)
        if ticket.drafts is not None:
            choice = Choice(self._draft.longest if ticket.drafts else 0, REQUESTED(), {})
        elif self._draft.always:
            choice = Choice(self._draft.longest, CONFIGURED(), {})
        else:
            choice = planner.choose(learned.speeds, learned.of(ticket.stage), work, self._draft.longest)
        story.why, story.expected_s = choice.why, choice.expected_s
        return choice

    def _known(self, ticket: Ticket) -> int:
        """How much of a prompt the draft model would find in the prefix cache."""
        shared = ticket.prompt.ids[: ticket.prompt.shared]
        return len(shared) if self._prefixes.has(id(self._draft.loaded), tuple(shared)) else 0

    def _leave(self, uid: int, ticket: Ticket, story: DraftTrace, choice: Choice) -> None:
        """Take a generation out of the batch, with the token that is on its way."""
        batch = self._batch._generation_batch  # mlx-lm has no other way to the token it has begun
        place = batch.uids.index(uid)
        token, sampler = int(batch._next_tokens[place].item()), batch.samplers[place]
        cache, _ = self._batch.remove([uid], return_prompt_caches=True)[uid]
        story.reader = story.reader or DraftReader(
            self._draft.loaded, self._prefixes, self._shape.prefill_step
        )
        self._solo = SoloGeneration(ticket, story.reader, cache, sampler)
        self._take_choice(choice)
        self._write(self._solo, [token])

    # --- alone --------------------------------------------------------------------------------------

    def _go_on(self, solo: SoloGeneration) -> None:
        ticket, story, learned = solo.ticket, self._stories[solo.ticket], self._draft.learned
        if solo.foreign:
            return self._join(solo, FOREIGN())
        if len(solo.ids) - 1 - solo.reader.have > self._draft.longest:
            had, count, seconds = solo.reader.read(solo.ids[:-1], ticket.prompt.shared)
            story.read_s += seconds
            learned.speeds = replace(learned.speeds, reading=learned.speeds.reading.seen(had, count, seconds))
            self._counters.add(prefill_chunks=1)
            return None
        tokens = self._tokens
        if self._learning and story.rounds % 2:
            tokens = (tokens + 1) // 2  # so that it is learned what each token adds to a check
        done = solo.round(min(tokens, ticket.max_tokens - len(ticket.output) - 1))
        self._learn(ticket, story, done)
        self._write(solo, done.written)
        if self._solo is not None and story.rounds % LOOK_EVERY == 0:
            self._take_choice(self._choice(ticket, story))
            if not self._tokens:
                self._join(solo, story.why)
        return None

    def _take_choice(self, choice: Choice) -> None:
        self._tokens = choice.tokens
        self._learning = choice.token_s is None and not self._draft.always

    def _learn(self, ticket: Ticket, story: DraftTrace, done: Round) -> None:
        """Take a round into what is known, and into the account."""
        learned, proposed = self._draft.learned, len(done.proposed)
        story.rounds += 1
        story.proposed += proposed
        story.accepted += done.accepted
        story.draft_s += done.draft_s
        story.check_s += done.check_s
        if not proposed:
            return
        learned.speeds = replace(
            learned.speeds,
            draft=learned.speeds.draft.seen(done.draft_s / proposed),
            check=learned.speeds.check.seen(1, proposed + 1, done.check_s),
        )
        learned.habits[ticket.stage] = planner.checked(learned.of(ticket.stage), proposed, done.accepted)

    def _write(self, solo: SoloGeneration, tokens: list[int]) -> None:
        """Tokens the model wrote, up to the end of the answer."""
        ticket, bound, reason = solo.ticket, solo.ticket.constraint, ""
        before = len(ticket.output)
        for token in tokens:
            stops = token in ticket.loaded.eos_ids
            if not stops:
                ticket.output.append(token)
            if stops or len(ticket.output) == ticket.max_tokens:
                reason = "stop" if stops else "length"
                break
        self._counters.add(decode_steps=1, output_tokens=len(ticket.output) - before)
        if not (reason or (bound and bound.error)):
            return
        uid = self._uid(ticket)
        self._solo = None
        if bound and bound.error:
            self._forget(uid).end(EngineError(f"Constrained decoding failed: {bound.error}"))
            return
        if bound and reason == "length":
            bound.take(ticket.output[-1])
        self._forget(uid).end(reason)

    def _join(self, solo: SoloGeneration, why: Message) -> None:
        """Back into the batch, which takes it from where it stands."""
        ticket = solo.ticket
        self._stories[ticket].why = why
        uid, self._solo = self._uid(ticket), None
        (joined,) = self._batch.insert_segments(
            [[solo.ids[-1:]]],
            max_tokens=[ticket.max_tokens - len(ticket.output)],
            caches=[solo.cache],
            all_tokens=[solo.ids[:-1]],
            samplers=[solo.sampler],
            logits_processors=[[ticket.constraint] if ticket.constraint else []],
        )
        self._running[joined] = self._running.pop(uid)

    def _forget(self, uid: int) -> Ticket:
        """It ends: its account, what is counted of it, and what it teaches."""
        ticket = super()._forget(uid)
        story, learned = self._stories.pop(ticket), self._draft.learned
        ticket.details[DETAIL] = story.detail(self._draft.name)
        self._counters.add(
            speculative_drafted=bool(story.rounds),
            speculative_direct=not story.rounds,
            speculative_proposed=story.proposed,
            speculative_accepted=story.accepted,
        )
        if story.decided and not ticket.over():
            learned.habits[ticket.stage] = planner.ended(
                learned.of(ticket.stage), len(ticket.output), story.token_s, story.predicted
            )
        return ticket

    def _uid(self, ticket: Ticket) -> int:
        return next(uid for uid, one in self._running.items() if one is ticket)


SPECULATIVE_METRICS: Mapping[str, Metric] = {
    "speculative_drafted": Metric("counter", "Generations with speculative decoding."),
    "speculative_direct": Metric(
        "counter", "Generations without speculative decoding although there is a draft model."
    ),
    "speculative_proposed": Metric("counter", "Tokens proposed by draft models."),
    "speculative_accepted": Metric("counter", "Proposed tokens that were accepted."),
}


@dataclass(eq=False)
class DraftModels(DecodeLoops):
    """The draft models of an engine, by the models they propose for, `longest` tokens at a time at most.

    Where it pays, or `always`.
    """

    names: Mapping[str, str]
    longest: int
    models: int | None = None
    """The most models that may be loaded."""
    always: bool = False
    _loaded: WeakKeyDictionary[LoadedModel, DraftModel] = field(default_factory=WeakKeyDictionary)
    _learned: dict[str, DraftStatistics] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise ConfigError("engines.mlx.draft_tokens: at least 1.")
        for model, draft in self.names.items():
            if draft in ("", model):
                raise ConfigError(f"engines.mlx.drafts: name a smaller model that drafts for {model}.")
        if self.models is not None and self.models < 2:
            raise ConfigError("engines.mlx.models: at least 2, as a model and its draft model are loaded.")

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """What an engine with draft models counts beside what all do."""
        return SPECULATIVE_METRICS

    def places(self, name: str) -> int:
        """How many loaded models it makes."""
        return 2 if name in self.names else 1

    def join(self, model: LoadedModel, name: str) -> LoadedModel:
        """Load the draft model of a model, on the thread that will generate. Gives the model as it was.

        Raises ModelMissing, also where the two do not fit.
        """
        draft = self.names.get(name)
        if draft is not None:
            other = load_model(draft, None)
            if why := misfit(model, other):
                raise ModelMissing(
                    f"{draft} cannot draft for {name}: {why} Name another one under drafts in "
                    "[machines.engines.mlx.options], or none."
                )
            learned = self._learned.setdefault(name, DraftStatistics())
            self._loaded[model] = DraftModel(draft, other, self.longest, learned, self.always)
        return model

    def loop(
        self, loaded: LoadedModel, shape: Shape, prefixes: PrefixCaches, counters: Counters
    ) -> DecodeLoop:
        """The batch of a model, of the kind that fits it."""
        draft = self._loaded.get(loaded)
        if draft is None:
            return DecodeLoop(loaded, shape, prefixes, counters)
        return DraftDecodeLoop(loaded, draft, shape, prefixes, counters)


def misfit(model: LoadedModel, draft: LoadedModel) -> str:
    """Why one cannot draft for the other; empty where it can."""
    if _words(model) != _words(draft):
        return "its vocabulary is another one, so a token means something else to each of them."
    for one, whose in ((model, "the model"), (draft, "the draft model")):
        if kind := odd(fresh(one.model)):
            return f"no token can be taken back from the cache of {whose} ({kind})."
    return ""


def _words(model: LoadedModel) -> Any:
    return model.tokenizer.get_vocab(), model.eos_ids
