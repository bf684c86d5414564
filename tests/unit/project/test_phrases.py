"""No text that a person reads has a phrase that docs/contributing/style.md does not allow."""

from __future__ import annotations

import re
from pathlib import Path

from babel.messages.pofile import read_po

ROOT = Path(__file__).parents[3]
ENGLISH = (
    r"hand(ed|s|ing)?[- ]ins?",
    r"what waits for you",
    r"upload and look first",
    r"still is in time",
    r"a level is found",
    r"came out",
    r"worth a look",
    r"put it differently",
    r"however late",
    r"is taken any more",
    r"nothing more is accepted",
    r"make the (assignment|course|account)",
    r"have a first one drafted",
    r"what becomes of it",
    r"do not fit",
    r"for whoever helps you",
    r"look(ing)? at (it|them) and",
    r"throw (it|them|these files) away",
    r"who is who",
    r"take it back",
    r"taken back",
    r"somebody",
    r"nobody has submitted",
    r"that is no zero",
    r"no zero",
    r"does not follow the grammar",
    r"to the letter",
    r"chosen ones",
    r"switch(ed)? (on|off)",
    r"for good",
    r"how far it is",
    r"where it stands",
    r"how it stands",
    r"when we ran it",
    r"put out nothing",
    r"for want of",
    r"no fault of",
    r"fixed rules",
    r"graded again",
    r"grade again",
    r"the grader",
    r"teaching",
    r"this course is over",
    r"you are in no group",
    r"fill by chance",
    r"the same again",
    r"forgotten",
    r"is there already",
    r"nothing would change",
    r"middle half",
    r"people among themselves",
    r"worked out",
    r"the numbers as a table",
    r"left out",
    r"left alone",
    r"by themselves",
    r"at a date",
    r"words to the student",
    r"fits? this filter",
    r"fits? that",
    r"what earns points",
    r"takes points off",
    r"per cent",
    r"(?-i:a zip)",
    r"(?-i:the zip)",
    r"e-mail",
    r"at (least|most) so many",
    r"\brungs?\b",
    r"ladder of credit",
    r"counted for that",
    r"wrong themselves",
    r"the solution itself",
    r"at a glance",
    r"grading machine",
    r"the trial",
    r"does not parse",
    r"nothing left to do",
    r"a full score",
    r"rules of its own",
    r"what is meant",
    r"students see of",
    r"what lives",
    r"what waits",
    r"given up",
    r"sign of life",
    r"heard of",
    r"hears of",
    r"takes nothing now",
    r"taken out",
    r"take it out",
    r"give it work",
    r"came second",
    r"a first guess",
    r"at this moment",
    r"needs a look",
    r"have a look",
    r"nothing waits to be sent",
    r"what came back",
    r"not for you",
    r"nothing here",
    r"our mistake",
    r"that way round",
    r"did not arrive as it should",
    r"a moment, please",
    r"on our side",
    r"what you typed",
    r"could not be got",
    r"cannot be got",
    r"two live",
    r"makes? a token",
    r"it is there already",
    r"what stands there",
    r"stands? here",
    r"so many points",
    r"as students see it",
    r"nothing of yours",
    r"this is what you typed",
    r"say how many",
    r"is done alone",
    r"who submits holds",
    r"find together",
    r"how fast it is",
    r"draw submissions",
    r"be taken back",
    r"took back",
    r"the page of this",
    r"keep and go on",
    r"keep it as",
    r"go on now",
    r"tick ",
    r"words of a flag",
    r"what was submitted",
    r"what was written",
    r"made from the solution",
    r"not judged",
    r"judged",
    r"beside everything else",
    r"are shown (it|them)",
    r"chosen, and",
    r"its words go",
    r"what counts then",
    r"came about",
    r"brought? .{1,40} up to date",
    r"(scores?|grades) told",
    r"know each other",
    r"to let it rest",
    r"belongs? together",
    r"with blanks between",
    r"out of work",
    r"take the place of",
    r"moved with it",
    r"by a table",
    r"says too little",
    r"did not arrive",
    r"count from now on",
    r"as it was (better|released)",
)
"""Regular expressions, whatever the case."""
GERMAN = (
    r"\bFassung",
    r"\bRaster\b",
    r"was zu entwickeln",
    r"was lebt",
    r"durchgesehen",
    r"Durchsicht",
    r"bei unserem Lauf",
    r"festen Regeln",
    r"keine Null",
    r"das System gab",
)


def found(texts: list[str], phrases: tuple[str, ...]) -> list[str]:
    """Each text with a phrase, and the phrase."""
    patterns = [re.compile(phrase, re.IGNORECASE) for phrase in phrases]
    return [f"{pattern.pattern!r}: {text}" for text in texts for pattern in patterns if pattern.search(text)]


def catalogue() -> list[tuple[list[str], list[str]]]:
    """The English and the German forms of each message."""
    with (ROOT / "app" / "translations" / "de.po").open("rb") as file:
        messages = [message for message in read_po(file) if message.id]
    forms = [
        [[text] if isinstance(text, str) else [*text] for text in (message.id, message.string)]
        for message in messages
    ]
    return [(english, german) for english, german in forms]


def test_messages_have_no_phrase_of_the_list() -> None:
    assert found([text for english, _ in catalogue() for text in english], ENGLISH) == []


def test_nor_has_the_german() -> None:
    assert found([text for _, german in catalogue() for text in german], GERMAN) == []


def test_a_phrase_is_found() -> None:
    assert found(["Hand in at once", "Submit now"], ENGLISH) == [
        r"'hand(ed|s|ing)?[- ]ins?': Hand in at once"
    ]
