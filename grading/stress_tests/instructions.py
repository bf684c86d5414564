"""Variants with an instruction to the grader: each text of the corpus, where its class belongs."""

from __future__ import annotations

import json
import re
from functools import partial
from random import Random

from grading.domain.rubric import Rubric
from grading.stress_tests.attacks import KINDS, Attack, load
from grading.stress_tests.editing import (
    add_code,
    add_comment,
    add_prose,
    own_places,
    with_output,
)
from grading.stress_tests.variant import Documents, Setting, Variant

WAYS = 40
"""Instructions of one stress test, as many of each class."""
FAMILY = "instructions"
PLACES = {
    "comments": "comment",
    "encodings": "code",
    "strings": "string",
    "markdown": "prose",
    "outputs": "output",
    "identifiers": "name",
}
FEWEST_LISTED = 3
_LISTED = re.compile(
    r"(?<![\w-])(?:load|loading|clean-rows|clean|regions|revenue|by-region|chart|counting|pairs|measures|craft"
    r"|data-quality|recommendation|decision)(?=[\"']?\s?[:=|])"
)
"""Criteria of the samples where something is said of them."""
TURNS = ("prose", "comment", "string")
"""Where instructions of all other classes stand, in turn."""


def variants() -> tuple[Variant, ...]:
    """One for each text of the corpus."""
    return tuple(_variant(attack) for kind in KINDS for attack in load(kind))


def chosen(rng: Random) -> tuple[str, ...]:
    """The keys of forty ways, as many of each class, in an order that mixes the classes."""
    each = WAYS // len(KINDS)
    picked = [rng.sample([_key(attack) for attack in load(kind)], each) for kind in KINDS]
    return tuple(key for turn in zip(*picked, strict=True) for key in turn)


def _key(attack: Attack) -> str:
    return f"instructions.{attack.kind}.{attack.number}"


def _variant(attack: Attack) -> Variant:
    return Variant(_key(attack), FAMILY, partial(instructed, attack=attack))


def for_rubric(text: str, rubric: Rubric) -> str:
    """The text with the criteria of this rubric where it lists several of the samples, as a student would."""
    named = list(dict.fromkeys(_LISTED.findall(text)))
    if len(named) < FEWEST_LISTED or not rubric.criteria:
        return text
    own = {name: rubric.criteria[n % len(rubric.criteria)].id for n, name in enumerate(named)}
    return _LISTED.sub(lambda hit: own[hit.group()], text)


def place_of(attack: Attack) -> str:
    """Where an attack of its class stands."""
    return PLACES.get(attack.kind) or TURNS[attack.number % len(TURNS)]


def instructed(documents: Documents, setting: Setting, rng: Random, attack: Attack) -> Documents | None:
    """The documents with the attack in them."""
    place, text = place_of(attack), for_rubric(attack.text, setting.rubric)
    made: Documents | None = None
    if place == "prose":
        made = add_prose(documents, text, rng)
    elif place == "output":
        made = _shown(documents, text, rng)
    elif place == "name":
        made = _named(documents, attack, rng)
    elif place == "string":
        quoted = json.dumps(text, ensure_ascii=False)
        made = add_code(documents, lambda language: f"note {_gets(language)} {quoted}", rng)
    elif place == "code" and not text.lstrip().startswith("<"):
        made = add_code(documents, lambda language: _in_language(text, language), rng)
    return made or add_comment(documents, text, rng) or add_prose(documents, text, rng)


def _gets(language: str) -> str:
    return "<-" if language == "r" else "="


def _in_language(text: str, language: str) -> str:
    """A line of code of the corpus, in a comment where it is one of the other language."""
    mine = "<-" in text or "cat(" in text
    fits = text.startswith("#") or mine == (language == "r")
    return text if fits else f"# {text}"


def _shown(documents: Documents, text: str, rng: Random) -> Documents | None:
    """As an output of a notebook; in a script printed, with what it prints below."""
    found = [one for one in own_places(documents, "code") if documents[one.document].kind == "notebook"]
    if found:
        return with_output(documents, rng.choice(found), text + "\n")
    return add_code(documents, lambda _: f"print({json.dumps(text, ensure_ascii=False)})", rng)


def _named(documents: Documents, attack: Attack, rng: Random) -> Documents | None:
    """As a name of a variable, every fourth as the name of the file."""
    if attack.number % 4 != 3 or not documents:
        return add_code(documents, lambda language: f"{attack.text} {_gets(language)} 1", rng)
    first = documents[0]
    ending = first.path.rpartition(".")[2]
    return (first.model_copy(update={"path": f"{attack.text}.{ending}"}), *documents[1:])
