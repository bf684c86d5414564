"""Which draft model proposes tokens for which model: loaded together, and compared first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from grading.domain.errors import ConfigError, ModelMissing
from workers.machine.engines.mlx.counters import Tally
from workers.machine.engines.mlx.decode_loop import Lane, Shape
from workers.machine.engines.mlx.model import LoadedModel, load_model
from workers.machine.engines.mlx.prefix_caches import Prefixes
from workers.machine.engines.speculative.caches import fresh, odd
from workers.machine.engines.speculative.decode_loop import Draft, DraftLane, Learned

COUNTED = ("speculative_direct", "speculative_drafted", "speculative_proposed", "speculative_accepted")


@dataclass(eq=False)
class Drafts:
    """The draft models of an engine, by the models they propose for, `longest` tokens at a time at most.

    Where it pays, or `always`.
    """

    names: Mapping[str, str]
    longest: int
    models: int | None = None
    """The most models that may be loaded."""
    always: bool = False
    _loaded: WeakKeyDictionary[LoadedModel, Draft] = field(default_factory=WeakKeyDictionary)
    _learned: dict[str, Learned] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise ConfigError("engines.mlx.draft_tokens: at least 1.")
        for model, draft in self.names.items():
            if draft in ("", model):
                raise ConfigError(f"engines.mlx.drafts: name a smaller model that drafts for {model}.")
        if self.names and self.models is not None and self.models < 2:
            raise ConfigError("engines.mlx.models: at least 2, as a model and its draft model are loaded.")

    @property
    def counted(self) -> tuple[str, ...]:
        """Counters that an engine with draft models has beside those of all."""
        return COUNTED if self.names else ()

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
            learned = self._learned.setdefault(name, Learned())
            self._loaded[model] = Draft(draft, other, self.longest, learned, self.always)
        return model

    def lane(self, loaded: LoadedModel, shape: Shape, prefixes: Prefixes, tally: Tally) -> Lane:
        """The batch of a model, of the kind that fits it."""
        draft = self._loaded.get(loaded)
        if draft is None:
            return Lane(loaded, shape, prefixes, tally)
        return DraftLane(loaded, draft, shape, prefixes, tally)


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
