"""Models and prompts for the benchmark of engines.

A model with random weights ends its answers by chance. Those made here cannot: of all tokens they only ever
choose the 94 printable ASCII characters, so at temperature 0 every answer has exactly as many tokens as were
asked for, and its text says which tokens these were.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.tiny_models import SMALL, TINY, Shape, make_model, write_printable
from grading.domain.evidence import Evidence
from grading.domain.jobs import Job, Material
from grading.domain.rubric import Criterion, Rubric

MODELS: Mapping[str, Shape] = {"tiny": TINY, "24m": SMALL}
CONTEXT = 8192
WORDS = (
    "read the data with care and draw a histogram of height because mean median which robust outliers "
    "good answer names summary filter survey plot frame group class age level reason clear quotes criterion"
).split()
RUBRIC = Rubric(criteria=(Criterion(id="reading", title="Reading", points=10, stage="analysis"),))


def legible_model(folder: Path, shape: Shape) -> Path:
    """A llama, float32, that at temperature 0 writes printable characters only and never ends by itself."""
    return write_printable(make_model(folder / "legible", "llama", shape, context=CONTEXT))


@dataclass(frozen=True)
class Ask:
    """One generation. `most` is the limit of output tokens; an empty `schema` binds nothing."""

    system: str
    user: str
    most: int
    schema: dict[str, Any] = field(default_factory=dict)

    @property
    def chat(self) -> list[dict[str, str]]:
        """The two messages."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]


class Prompts:
    """Makes texts of about so many tokens for one model; the same name gives the same text."""

    def __init__(self, model: Path) -> None:
        from mlx_lm.utils import load_tokenizer

        tokenizer = load_tokenizer(model)
        self._tokens = {word: len(tokenizer.encode(f" {word}")) for word in WORDS}

    def text(self, tokens: int, name: str) -> str:
        """Words in an order that depends on the name, from the first on."""
        order = random.Random(name)
        words: list[str] = []
        count = 0
        while count < tokens:
            words.append(order.choice(WORDS))
            count += self._tokens[words[-1]]
        return " ".join(words)

    def asks(self, shared: str, own: str, count: int, sizes: Sizes) -> list[Ask]:
        """So many requests with one shared text, each with one of its own."""
        system = self.text(sizes.shared, shared)
        return [Ask(system, self.text(sizes.own, f"{own} {number}"), sizes.output) for number in range(count)]


@dataclass(frozen=True)
class Sizes:
    """Tokens of a request: of the prefix that a class shares, of one's own prompt, and of the answer."""

    shared: int
    own: int
    output: int


def job(most: int) -> Job:
    """A job of the analysis with one criterion; its schema is made for so many output tokens."""
    return Job(
        run_id="bench",
        round_id="bench",
        stage="analysis",
        material=Material(title="Benchmark"),
        rubric=RUBRIC,
        documents=(),
        evidence=Evidence(),
        nonce="0",
        budget_s=600,
        max_output_tokens=most,
    )
