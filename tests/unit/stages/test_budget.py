"""Prompts within a context, measured by a real tokenizer or estimated from above."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.tiny_models import make_model
from grading.domain.document import Cell, Document, Output
from grading.domain.errors import JobInvalid
from grading.domain.evidence import Evidence
from grading.domain.jobs import Job, Result
from tests.support.german import in_german
from tests.unit.stages.test_prompt import MATERIAL, job
from tests.unit.stages.test_run import GOOD, Scripted
from workers.machine.engines.base import Progress, TokenCounter
from workers.machine.stages import known_stages, run_stage
from workers.machine.stages.prompt import Prompt
from workers.machine.stages.truncation import Piece, budget, fit_pieces, weight

ANSWER = 400
HUGE = 1_000_000_000


class Tiny:
    """The tokenizer of a real tiny model: about 1.5 characters a token, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        make_model(folder)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.asked: list[int] = []

    def count(self, text: str) -> int:
        """Tokens of a text."""
        self.asked.append(len(text))
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def chat(self, prompt: Prompt) -> int:
        """Tokens of both messages with all that the chat template puts around them."""
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return len(self._tokenizer.encode(text, add_special_tokens=False))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return Tiny(tmp_path_factory.mktemp("tiny"))


LINES = st.one_of(
    st.sampled_from(["x <- 1", "data <- read.csv('survey.csv')", "", "    return total", "# 結果を見る"]),
    st.text(max_size=30),
    st.text(alphabet="漢字仮名交じり文🎉👩‍💻éß€", max_size=30),
    st.builds(lambda c, n: c * n, st.sampled_from("ay漢🎉 <"), st.integers(0, 700)),
)
SOURCES = st.builds(lambda lines, n: "\n".join(lines * n), st.lists(LINES, max_size=5), st.integers(1, 12))


@st.composite
def cells(draw: st.DrawFn, number: int) -> Cell:
    source = draw(SOURCES)
    added = tuple(range(1, source.count("\n") + 2)) if draw(st.booleans()) else ()
    outputs = tuple(Output(kind="stream", text=text) for text in draw(st.lists(SOURCES, max_size=1)))
    kind = draw(st.sampled_from(["code", "markdown"]))
    return Cell(number=number, kind=kind, source=source, added=added, outputs=outputs)  # type: ignore[arg-type]


@st.composite
def submissions(draw: st.DrawFn) -> tuple[Document, ...]:
    count = draw(st.integers(0, 4))
    found = tuple(draw(cells(number)) for number in range(1, count + 1))
    return (Document(path="a.ipynb", kind="notebook", language="r", cells=found),)


def small(**change: Any) -> Job:
    return job(max_output_tokens=ANSWER, **change)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents=submissions(), context=st.integers(5_500, 14_000))
def test_by_real_count_nothing_overflows_and_nothing_is_cut_that_fits(
    tiny: Tiny, documents: tuple[Document, ...], context: int
) -> None:
    given_job = small(documents=documents)
    whole = known_stages()["analysis"].render(given_job, HUGE, tiny.count)
    assert not any(flag.code == "shortened" for flag in whole.flags)
    prompt = known_stages()["analysis"].render(given_job, context, tiny.count)
    assert tiny.chat(prompt) + 2 * ANSWER <= context
    assert tiny.count(prompt.system) + tiny.count(prompt.user) == prompt.tokens
    cut = any(flag.code == "shortened" for flag in prompt.flags)
    assert cut == (whole.tokens > budget(context, ANSWER, tiny.count).room)
    assert cut == (prompt.user != whole.user)
    assert prompt.system == whole.system


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(min_codepoint=0x80, codec="utf-8"), max_size=200))
def test_the_estimate_is_above_the_count_whatever_the_script(tiny: Tiny, text: str) -> None:
    assert 3 * tiny.count(text) <= weight(text)


@pytest.mark.parametrize("letter", ["漢", "🎉", "ж", "é"])
def test_long_text_of_any_script_is_safe_without_a_tokenizer(letter: str) -> None:
    source = "\n".join([letter * 90] * 400)
    cell = Cell(number=1, kind="markdown", source=source, added=tuple(range(1, 401)))
    documents = (Document(path="a.md", kind="prose", language="markdown", cells=(cell,)),)
    prompt = known_stages()["analysis"].render(small(documents=documents), 8_000)
    text = prompt.system + prompt.user
    at_worst = sum(1 if c < "\x80" else 3 * len(c.encode()) for c in text) / 3
    assert at_worst + 2 * ANSWER <= 8_000
    assert [flag.code for flag in prompt.flags] == ["shortened"]


def lines(n: int, word: str = "row") -> str:
    return "\n".join(f"{word} {i}" for i in range(n))


def outputs(*sizes: int) -> tuple[Document, ...]:
    made = tuple(
        Cell(
            number=n,
            kind="code",
            source=f"x{n}",
            added=(1,),
            outputs=(Output(kind="stream", text=lines(size)),),
        )
        for n, size in enumerate(sizes, start=1)
    )
    return (Document(path="a.ipynb", kind="notebook", language="r", cells=made),)


def just_below(tiny: Tiny, documents: tuple[Document, ...]) -> Prompt:
    """The prompt when the context is 20 tokens too small."""
    whole = known_stages()["analysis"].render(small(documents=documents), HUGE, tiny.count)
    spare = HUGE - 2 * ANSWER - budget(HUGE, ANSWER, tiny.count).room
    return known_stages()["analysis"].render(
        small(documents=documents), whole.tokens + 2 * ANSWER + spare - 20, tiny.count
    )


def test_only_as_many_pieces_are_cut_as_it_takes(tiny: Tiny) -> None:
    prompt = just_below(tiny, outputs(300, 500, 60, 300))
    assert "1 long output was cut" in prompt.flags[0].message
    assert prompt.user.count("lines left out") == 1
    assert "| row 499" in prompt.user


def test_rules_are_taken_in_their_order(tiny: Tiny) -> None:
    starter = Cell(number=9, kind="code", source=lines(300, "given"))
    own = Cell(number=10, kind="code", source=lines(300, "mine"), added=tuple(range(1, 301)))
    document = outputs(30)[0]
    documents = (document.model_copy(update={"cells": (*document.cells, starter, own)}),)
    message = just_below(tiny, documents).flags[0].message
    assert "1 output was cut to eight lines" in message
    assert "starter" not in message
    room = budget(9_000, ANSWER, tiny.count).room
    prompt = known_stages()["analysis"].render(small(documents=documents), 9_000, tiny.count)
    assert prompt.tokens <= room
    said = prompt.flags[0].message
    assert said.index("output") < said.index("starter")
    german = in_german(prompt.flags[0].coded)
    assert german.index("Ausgabe wurde") < german.index("wie in der Vorlage geblieben")


def test_counting_stays_cheap(tiny: Tiny) -> None:
    documents = outputs(*[200] * 60)
    whole = known_stages()["analysis"].render(small(documents=documents), HUGE, tiny.count)
    tiny.asked.clear()
    known_stages()["analysis"].render(small(documents=documents), HUGE, tiny.count)
    assert len(tiny.asked) == 2
    tiny.asked.clear()
    known_stages()["analysis"].render(small(documents=documents), 9_000, tiny.count)
    assert sum(tiny.asked) < 4 * (len(whole.system) + len(whole.user))


def test_shared_material_is_cut_no_more_than_it_must_be_and_the_same_for_all(tiny: Tiny) -> None:
    material = MATERIAL.model_copy(update={"solution": lines(900, "solve"), "task": lines(50, "do")})
    one = known_stages()["analysis"].render(small(material=material), 9_000, tiny.count)
    two = known_stages()["analysis"].render(small(material=material, documents=()), 9_000, tiny.count)
    assert one.system == two.system
    assert "the middle of the solution omitted" in one.flags[0].message
    assert "task" not in one.flags[0].message
    assert in_german(one.flags[0].coded) == (
        "Für den Kontext des Modells gekürzt: die Mitte der Lösung wurde weggelassen."
    )
    share = 0.6 * budget(9_000, ANSWER, tiny.count).room
    assert 0.97 * share < tiny.count(one.system) <= share


def test_pieces_that_fit_one_by_one_are_left_alone() -> None:
    pieces = tuple(Piece("code", (f"line {n}",)) for n in range(5))
    assert fit_pieces(pieces, sum(weight(piece.text) for piece in pieces)) == (pieces, ())


class Measuring(Scripted):
    """Has a tokenizer."""

    def __init__(self, *acts: Any, context: int | None, count: Callable[[str], int] = len) -> None:
        super().__init__(*acts)
        self.context = context
        self._count = count
        self.measured: list[tuple[str, float]] = []

    def token_counter(self, model: str, seconds: float, progress: Progress) -> TokenCounter | None:
        self.measured.append((model, seconds))
        return TokenCounter(self.context, self._count)


def ran(engine: Scripted, context_tokens: int, told: list[int] | None = None) -> Result:
    given_job = small(documents=outputs(2_000), evidence=Evidence())
    say = told.append if told is not None else None
    return run_stage(given_job, engine, "m", "x", lambda *_: None, engine.clock, context_tokens, say)


@pytest.mark.parametrize(("config", "own"), [(9_500, 200_000), (200_000, 9_500), (9_500, None)])
def test_the_lower_of_the_configuration_s_context_and_the_model_s_own_counts(
    config: int, own: int | None
) -> None:
    told: list[int] = []
    engine = Measuring(GOOD, context=own)
    result = ran(engine, config, told)
    assert engine.measured == [("m", 60.0)]
    assert result.ok
    assert result.prompt is not None
    size = len(result.prompt.system) + len(result.prompt.user)
    assert told == [size]
    assert size + 2 * ANSWER <= 9_500
    assert [flag.code for flag in result.flags if flag.code != "quote_not_found"] == ["shortened"]


def test_an_engine_that_knows_no_tokenizer_is_estimated_for() -> None:
    class Unsure(Measuring):
        def token_counter(self, model: str, seconds: float, progress: Progress) -> TokenCounter | None:
            return None

    told: list[int] = []
    result = ran(Unsure(GOOD, context=None), 9_500, told)
    assert result.prompt is not None
    text = result.prompt.system + result.prompt.user
    assert told == [-(-weight(text) // 3)]


def test_a_submission_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(JobInvalid, match="context"):
        known_stages()["analysis"].render(small(), 4_000, len)
