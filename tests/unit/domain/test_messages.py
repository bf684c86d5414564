"""Coded messages: declaring, rendering in a language, and what comes from machines nobody trusts."""

from __future__ import annotations

import ast
import json
from gettext import NullTranslations
from pathlib import Path

import pytest
from pydantic import ValidationError

from grading.domain import messages
from grading.domain.evidence import CheckOutcome, Flag
from grading.domain.messages import Message, define_message, define_plural, render, verbatim

ROOT = Path(__file__).parents[3]
PACKAGES = ("grading", "workers", "app", "cli")
LINES = define_plural("test.lines", "%(count)s line", "%(count)s lines")
FOUND = define_message("test.found", "%(found)s of %(wanted)s, which is 100%% of it")
NOTHING = define_message("test.nothing", "nothing was added here")


class German(NullTranslations):
    """A catalogue of three texts."""

    TEXTS = {
        "%(found)s of %(wanted)s, which is 100%% of it": "von %(wanted)s nur %(found)s, also 100 %%",
        "nothing was added here": "hier kam nichts dazu",
    }

    def gettext(self, message: str) -> str:
        return self.TEXTS.get(message, message)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return {"%(count)s line": ("%(count)s Zeile", "%(count)s Zeilen")}[msgid1][n != 1]


def german(said: Message) -> str:
    return render(said, German(), lambda value: f"{value}".replace(".", ","))


def test_a_message_is_english_by_itself_and_rendered_in_a_language() -> None:
    said = FOUND(found=0.5, wanted=LINES(count=3))
    assert str(said) == said.message == "0.5 of 3 lines, which is 100% of it"
    assert german(said) == "von 3 Zeilen nur 0,5, also 100 %"


def test_the_count_chooses_the_form() -> None:
    assert [str(LINES(count=n)) for n in (0, 1, 2)] == ["0 lines", "1 line", "2 lines"]
    assert [german(LINES(count=n)) for n in (0, 1, 2)] == ["0 Zeilen", "1 Zeile", "2 Zeilen"]


def test_lists_and_messages_in_them_are_written_with_commas() -> None:
    said = FOUND(found=("a.py", 2, NOTHING()), wanted=1)
    assert german(said) == "von 1 nur a.py, 2, hier kam nichts dazu, also 100 %"


def test_a_message_survives_json_with_its_types() -> None:
    said = FOUND(found=(1, 2.5, "3", True), wanted=LINES(count=1))
    assert Message.model_validate_json(said.model_dump_json()) == said
    assert json.loads(said.model_dump_json())["params"]["found"] == [1, 2.5, "3", True]


def test_a_code_that_is_not_known_here_keeps_its_english() -> None:
    newer = Message(code="check.of_tomorrow", params={"n": 3}, message="3 things of tomorrow")
    assert german(newer) == "3 things of tomorrow"
    assert german(Message(code="check.of_tomorrow")) == "check.of_tomorrow"


def test_parameters_that_do_not_fit_leave_the_english() -> None:
    assert german(Message(code="test.found", params={"found": 1}, message="1 of many")) == "1 of many"
    assert german(Message(code="test.lines", params={"count": "x"})) == "x Zeilen"


def test_a_message_without_a_code_is_nobodys_to_translate() -> None:
    assert german(verbatim("nothing was added here")) == "nothing was added here"


def test_parameters_are_never_taken_as_formats() -> None:
    hostile = Message(code="test.found", params={"found": "%(wanted)s%s%(x)d{0}", "wanted": "%n"})
    assert render(hostile) == "%(wanted)s%s%(x)d{0} of %n, which is 100% of it"
    assert str(verbatim("%(x)s {0.__class__}")) == "%(x)s {0.__class__}"


def test_long_texts_are_cut_and_wrong_shapes_refused() -> None:
    long = Message(code="test.found", params={"found": "x" * 10_000, "wanted": ["y" * 10_000] * 5})
    assert len(render(long)) < 6 * messages.MAX_TEXT + 100
    assert len(Message(message="z" * 100_000).message) == messages.MAX_MESSAGE
    for params in ({str(n): n for n in range(17)}, {"a": {"b": "c"}, "d": None}, {"a": [["b"]]}, [1]):
        with pytest.raises(ValidationError):
            Message.model_validate({"code": "test.found", "params": params})


@pytest.mark.parametrize("depth", [30, 3000])
def test_messages_in_messages_end(depth: int) -> None:
    nested: dict[str, object] = {"code": "test.found"}
    for _ in range(depth):
        nested = {"code": "test.found", "params": {"found": nested, "wanted": 1}}
    with pytest.raises(ValidationError):
        Message.model_validate(nested)


def test_a_declaration_names_its_code_once_and_has_only_named_placeholders() -> None:
    assert (
        define_message("test.nothing", "nothing was added here") == NOTHING
    )  # a module that is loaded again
    for code, text in [
        ("test.nothing", "something else"),
        ("Not a code", "x"),
        ("test.bad", "%s of it"),
        ("test.bad", "100 % of it"),
        ("test.bad", "%(n)d of it"),
    ]:
        with pytest.raises(ValueError):
            define_message(code, text)
    assert "test.bad" not in messages.known_messages()


def test_each_code_is_declared_in_one_place() -> None:
    places: dict[str, list[str]] = {}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        source = path.read_text("utf-8")
        for call in ast.walk(ast.parse(source)) if "define_" in source else ():
            match call:
                case ast.Call(ast.Name("define_message" | "define_plural"), [ast.Constant(code), *_]):
                    places.setdefault(code, []).append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert len(places) > 500
    assert {code: found for code, found in places.items() if len(found) > 1} == {}


def test_parameters_that_are_missing_or_unknown_are_a_mistake_of_the_program() -> None:
    for params in ({}, {"found": 1}, {"found": 1, "wanted": 2, "other": 3}):
        with pytest.raises(TypeError):
            FOUND(**params)


def test_flags_and_outcomes_carry_their_message() -> None:
    said = FOUND(found=1, wanted=2)
    flag = Flag.of("parse", said, hold=True)
    assert (flag.code, flag.message, flag.message_code, flag.hold) == ("parse", str(said), "test.found", True)
    assert Flag.model_validate_json(flag.model_dump_json()).coded == said
    outcome = CheckOutcome(check="words", label="", earned=1, **said.model_dump(mode="python"))
    assert outcome.coded == said
    old = Flag.model_validate({"code": "parse", "message": "as it was"})
    assert old.model_dump(exclude_none=True) == {"code": "parse", "message": "as it was", "hold": False}
    assert german(old.coded) == "as it was"
