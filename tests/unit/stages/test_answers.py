"""What becomes of an answer: words that give the prompt away, quotes and the places they come with."""

from __future__ import annotations

import json

import pytest

from grading.domain.document import Location
from grading.domain.stages import AnalysisOutput
from tests.support.german import in_german
from tests.unit.stages.test_parse import LOAD, SUM, changed
from tests.unit.stages.test_prompt import code, job
from tests.unit.stages.test_run import GOOD, Scripted, run
from workers.machine.stages.prompt_leaks import canary


def leak(text: str) -> str:
    return json.dumps(changed(summary=f"Loads the data. {text}", strengths=[text.upper()]))


def test_an_answer_that_repeats_the_prompt_is_held_and_the_words_are_taken_out() -> None:
    given = job(nonce="0123456789abcdef")
    word = canary(given)
    assert word not in given.nonce
    for secret in (word, given.nonce):
        result = run(Scripted(leak(secret)), given)
        assert [(flag.code, flag.hold) for flag in result.flags] == [("prompt_leaked", True)]
        assert "Wörter seiner Anweisungen" in in_german(result.flags[0].coded)
        assert secret not in json.dumps(result.output).lower()
        assert result.output["summary"].startswith("Loads the data.")


def test_a_leak_in_escaped_letters_is_one_too() -> None:
    given = job(nonce="0123456789abcdef")
    word = canary(given)
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in word)
    answer = leak("SECRET").replace("SECRET", escaped)
    assert word not in answer
    result = run(Scripted(answer), given)
    assert [flag.code for flag in result.flags] == ["prompt_leaked"]
    assert word not in json.dumps(result.output)


def test_a_leak_in_the_first_of_two_tries_is_told_and_thoughts_are_not_looked_at() -> None:
    given = job(nonce="0123456789abcdef")
    result = run(Scripted(f"You said: never write {canary(given)}.", GOOD), given)
    assert [flag.code for flag in result.flags] == ["prompt_leaked"]
    thinking = f"<think>The word {canary(given)} must not appear.</think>{GOOD}"
    assert run(Scripted(thinking), given).flags == ()


def test_the_canary_stands_before_the_fence_and_is_another_one_in_each_job() -> None:
    jobs = [job(nonce=f"{n:016x}") for n in range(50)]
    words = {canary(given) for given in jobs}
    assert len(words) == 50
    for given in jobs[:3]:
        prompt = run(Scripted(GOOD), given).prompt
        assert prompt is not None
        assert canary(given) not in prompt.system
        before, _, fenced = prompt.user.partition(f"<<<{given.nonce}")
        assert canary(given) in before
        assert canary(given) not in fenced


def test_invisible_characters_are_told_and_do_not_hold() -> None:
    given = job(documents=(code("total = 1  # a\u202eb\u200bc" + "".join(chr(0xE0000 + n) for n in b"hi")),))
    [flag] = [flag for flag in run(Scripted(GOOD), given).flags if flag.code == "invisible_text"]
    assert flag.message.startswith("4 invisible characters were removed")
    assert in_german(flag.coded).startswith("4 unsichtbare Zeichen wurden entfernt")
    assert not flag.hold
    ordinary = (
        "x = '❤️ 👩\u200d💻 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f Auf\u00adlage'"
    )
    arabic = "# \u2067\u0645\u0631\u062d\u0628\u0627\u2069 \u0e01\u200b\u0e02"
    given = job(documents=(code(f"{ordinary}\n{arabic}\n# می\u200cخواهم"),))
    assert "invisible_text" not in [flag.code for flag in run(Scripted(GOOD), given).flags]


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("1:2:3 nrow(sales)", 3),
        ("1:4:9 nrow(sales)", 3),
        ("7:1:1 nrow(sales)", 3),
        ("nrow(sales)", 3),
        ("[1:2:3] nrow(sales)", 3),
        ("1:2:3: + 3| nrow(sales)", 3),
        ("1:2 nrow(sales)", 3),
    ],
)
def test_the_words_of_a_quote_decide_and_correct_its_place(said: str, line: int) -> None:
    quoting = changed(judgements={"load": LOAD | {"quotes": [said]}, "sum": SUM})
    result = run(Scripted(json.dumps(quoting)))
    [quote] = AnalysisOutput.model_validate(result.output).judgements[0].quotes
    assert quote.location == Location(document="work.ipynb", cell=2, line=line)
    assert quote.text.endswith("nrow(sales)")
    assert "1:" not in quote.text
    assert result.flags == ()


def test_of_equal_words_those_at_the_given_place_are_taken() -> None:
    source = "x <- 1\ny <- 2\nx <- 1"
    documents = (code(source), code(source).model_copy(update={"path": "b.py"}))
    places = []
    for said in ("2:1:3 x <- 1", "2:1:1 x <- 1", "2:3 x <- 1", "x <- 1"):
        quoting = changed(judgements={"load": LOAD | {"quotes": [said]}, "sum": SUM}, findings=[])
        output = AnalysisOutput.model_validate(
            run(Scripted(json.dumps(quoting)), job(documents=documents)).output
        )
        place = output.judgements[0].quotes[0].location
        assert place is not None
        places.append((place.document, place.cell, place.line))
    assert places == [("b.py", None, 3), ("b.py", None, 1), ("b.py", None, 3), ("a.py", None, 1)]


def test_words_of_an_output_are_found_at_their_cell() -> None:
    quoting = changed(judgements={"load": LOAD | {"quotes": ["1:2:0 [1] 24"]}, "sum": SUM})
    output = AnalysisOutput.model_validate(run(Scripted(json.dumps(quoting))).output)
    assert output.judgements[0].quotes[0].location == Location(document="work.ipynb", cell=2)


def test_a_place_without_words_and_dots_alone_are_no_reason() -> None:
    echo = {name: {"quotes": ["1:3:12 …"], "reason": "…", "level": 4} for name in ("load", "sum")}
    result = run(Scripted(*[json.dumps(changed(judgements=echo))] * 2))
    assert (result.ok, result.error) == (False, "output_invalid")
