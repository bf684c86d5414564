"""No text that a person reads has a phrase that docs/contributing/style.md does not allow."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from babel.messages.pofile import read_po

from app.api import openapi

ROOT = Path(__file__).parents[3]
MADE = re.compile(r"<!-- from the code: .*?<!-- end -->|^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
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
    r"(is|was) no (number|text file|csv|sandbox)",
    r"stands in",
    r"asks for nothing; give",
    r"is asked by",
    r"are asked\.",
    r"does not speak",
    r"of the address is not one",
    r"a number with an end",
    r"goes? with",
    r"zips in zips",
    r"holds? (more than|two|too much|%\(name\)s|%\(found\)s)",
    r"with anything in them",
    r"nothing in it",
    r"whatever its name",
    r"cannot be made",
    r"made so",
    r"names the students",
    r"says anything about",
    r"a person must (look|rate)",
    r"next to nothing",
    r"of the whole work",
    r"work is run",
    r"contradicts itself or lacks",
    r"longer than it may\b(?! be)",
    r"as it may be",
    r"part was begun",
    r"called off",
    r"went off",
    r"got stuck",
    r"had too much to do",
    r"too much to do",
    r"do nothing now",
    r"comes soon",
    r"looked yet",
    r"nothing waits",
    r"done with it",
    r"sent to it by name",
    r"lost on its way",
    r"the shape of",
    r"nobody's work",
    r"working on this part",
    r"work is safe",
    r"look at its log",
    r"look what",
    r"look whether",
    r"may stand before",
    r"no page for chats",
    r"no room for another",
    r"sends on to",
    r"broke off the answer",
    r"waits for this run",
    r"this work was begun",
    r"asking it for a word",
    r"reading machine",
    r"the prompt was read where",
    r"the way it took",
    r"have to be read",
    r"put into the cache",
    r"nearly pays",
    r"time for a draft",
    r"says so\.",
    r"near the most",
    r"went on after",
    r"of its instructions, as it may",
    r"that got this work",
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
    r"there is no such",
    r"there is nothing under",
    r"are the most\.",
    r"are the least\.",
    r"goes in a circle",
    r"comes from the future",
    r"(asked|answered|used|changed|registered) (so|like this)\.",
    r"as it was asked",
    r"what it was asked",
    r"is none of this",
    r"never was one",
    r"the token stays",
    r"fits? this grade",
    r"must look at",
    r"lost on its way",
    r"could be made of this",
    r"has not moved",
    r"whoever runs",
    r"choice is over",
    r"is kept no longer",
    r"not there any ?more",
    r"load the page again",
    r"because you asked for",
    r"^say why",
    r"in the meantime\. check it",
    r"takes no more",
    r"names its key",
    r"gives no token",
    r"no good '",
    r"is no (student|signed|rubric)",
    r"that could be changed",
    r"one a line",
    r"takes? no work",
    r"(\w+) is gone[.:;]",
    r"is new, for",
    r"what students read about",
    r"all there, being",
    r"nothing arrived",
    r"goes on by itself",
    r"\bfurthest\b",
    r"how far bonus",
    r"stand in another order",
    r"asked so\b",
    r"send again\b",
    r"nothing to send again",
    r"a person gave (stay|are cut)",
)
"""Regular expressions, whatever the case."""
OPERATORS = (
    r"is away",
    r"gives? no answer",
    r"takes? no work",
    r"took no work",
    r"gets? (no (more )?)?work",
    r"goes? back",
    r"in other hands",
    r"thrown away",
    r"trying again",
    r"tr(y|ies) again",
    r"cannot (say|be told|tell)",
    r"(is|was) told",
    r"nothing is told",
    r"broke\b",
    r"broken off",
    r"sweeping later",
    r"by itself",
    r"somebody else",
    r"looked at",
    r"makes? room",
    r"has come",
    r"set going",
    r"knew|knows",
    r"nobody",
    r"silence",
    r"is it well",
    r"what became of",
    r"an hour$",
    r"a second$",
    r"came to an end",
    r"that were not yet",
    r"back-up",
)
"""Of logs, metrics, alerts and dashboards, beside those of messages."""
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
    r"Bitte um Nachprüfung",
    r"Konto gesperrt",
    r"auf den neuen Stand",
    r"unterschrieben",
    r"\bMaschine\b",
)

DOCUMENTS = (
    r"hand(ed|s|ing)?[- ]ins?",
    r"handed in",
    r"somebody",
    r"whoever",
    r"per cent",
    r"e-mail",
    r"(?-i:\bzips?\b)",
    r"stands? (in|at|here|below|beside)",
    r"is told",
    r"hears? of",
    r"heard of",
    r"\bdies\b",
    r"given up",
    r"gives up",
    r"left (out|alone)",
    r"taken (out|back)",
    r"for good",
    r"for want of",
    r"no fault of",
    r"to the letter",
    r"came about",
    r"graded again",
    r"worked out",
    r"what waits",
    r"nothing waits",
    r"judged",
    r"switch(ed)? (on|off)",
    r"the grader\b",
    r"that is no zero",
    r"we tried",
)
"""For documents, except decision records and what is made from the code."""


PRINTS = re.compile(
    r"echo|Error$|Unavailable$|NotFound$|confirm|prompt|_?say|_tell|ok|warning|failure|Remedy|Why"
)
COMMAND = re.compile(r"\b(command|group)\b")
COMMANDS = (
    r"hears? of",
    r"give up",
    r"made (here|by|now)",
    r"stands? there",
    r"taken? out",
    r"left there",
    r"mend",
    r"looked at",
    r"whom",
)
"""For what commands print, beside ENGLISH."""


API = (
    r"(how far|what came|what counts|where it can be)",
    r"whose it was",
    r"by their number",
    r"(its|their|the \w+'s) number\b",
    r"where (none|nobody|there (is|was) none)",
    r"takes nothing",
    r"for (staff|administrators)\.",
    r"make a (course|link|secret)",
)
"""For the description of the HTTP API, beside ENGLISH."""


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


def described(value: object) -> Iterator[str]:
    """Each summary and description inside."""
    if isinstance(value, dict):
        yield from (
            one for key, one in value.items() if key in ("summary", "description") and isinstance(one, str)
        )
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from described(inner)


LOGGING = ("debug", "info", "warning", "error", "exception", "critical")
METRICS = ("Counter", "Gauge", "Histogram", "Metric", "gauge", "counter", "_histogram")


def said_to_operators() -> Iterator[str]:
    """Texts of logs and of metrics, and what alerts and dashboards say."""
    for folder in ("app", "grading", "workers", "cli"):
        for path in (ROOT / folder).rglob("*.py"):
            code = path.read_text(encoding="utf-8")
            calls = ast.walk(ast.parse(code)) if "log." in code or "etric" in code else ()
            yield from (text for call in calls if isinstance(call, ast.Call) for text in constants(call))
    alerts = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8"))
    for rule in (rule for group in alerts["groups"] for rule in group["rules"]):
        yield from rule["annotations"].values()
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/grader.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        yield from (panel["title"], panel.get("description", ""))


def constants(call: ast.Call) -> Iterator[str]:
    """The text of a logging call or of the constructor of a metric."""
    match call:
        case ast.Call(ast.Attribute(ast.Name("log"), name), [ast.Constant(str(text)), *_]) if name in LOGGING:
            yield text
        case ast.Call(ast.Name(name), [_, ast.Constant(str(text)), *_]) if name in METRICS:
            yield text


def test_messages_have_no_phrase_of_the_list() -> None:
    assert found([text for english, _ in catalogue() for text in english], ENGLISH) == []


def test_nor_has_the_german() -> None:
    assert found([text for _, german in catalogue() for text in german], GERMAN) == []


def test_nor_has_the_description_of_the_api() -> None:
    texts = list(described(openapi.document()))
    assert {"Release a grade, even if it is held.", "the ID of the submission"} <= set(texts)
    assert found(texts, ENGLISH + API) == []


def test_nor_have_documents() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    records, lists = ROOT / "docs" / "decisions", ("style.md", "CHANGELOG.md")
    texts = [
        page.read_text(encoding="utf-8")
        for page in pages
        if records not in page.parents and page.name not in lists
    ]
    lines = [re.sub(r"`[^`]*`", "", line) for text in texts for line in MADE.sub("", text).splitlines()]
    assert found(lines, DOCUMENTS) == []


def test_nor_have_logs_metrics_and_alerts() -> None:
    texts = list(said_to_operators())
    assert {"sending the heartbeat failed", "HTTP requests answered.", "Redis is unavailable"} <= set(texts)
    assert found(texts, ENGLISH + OPERATORS) == []


def said_by_commands() -> Iterator[str]:
    """The help of commands and options, and what commands print or raise."""
    for path in (*(ROOT / "cli").rglob("*.py"), *(ROOT / "bench").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                map(COMMAND.search, map(ast.unparse, node.decorator_list))
            ):
                yield ast.get_docstring(node) or ""
            elif isinstance(node, ast.Call):
                said = [one.value for one in node.keywords if one.arg == "help"]
                said += node.args if PRINTS.search(ast.unparse(node.func)) else []
                yield from (text for expression in said for text in literals(expression))


def literals(tree: ast.AST) -> Iterator[str]:
    """The texts in an expression; `…` stands for values in them."""
    match tree:
        case ast.Constant(str(text)):
            yield text
        case ast.JoinedStr(parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
        case ast.IfExp(_, body, orelse):
            yield from (text for part in (body, orelse) for text in literals(part))
        case ast.BinOp(left, ast.Add(), right):
            yield from (text for part in (left, right) for text in literals(part))


def visible(template: str) -> Iterator[str]:
    """The lines of a template outside of tags, scripts and expressions."""
    for pattern in (r"<(script|style)\b.*?</\1>", r"{#.*?#}", r"{%.*?%}", r"{{.*?}}", r"<[^>]*>"):
        template = re.sub(pattern, " ", template, flags=re.DOTALL)
    yield from (line.strip() for line in template.splitlines() if line.strip())


def test_nor_have_commands() -> None:
    texts = list(said_by_commands())
    assert {"Retry all failed runs.", "Nothing has failed.", "Measure Grader itself."} <= set(texts)
    assert found(texts, ENGLISH + COMMANDS) == []


def test_nor_have_templates() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "app" / "templates").rglob("*.html")]
    assert len(pages) > 50
    assert found([line for page in pages for line in visible(page)], ENGLISH) == []


def test_a_phrase_is_found() -> None:
    assert found(["Hand in at once", "Submit now"], ENGLISH) == [
        r"'hand(ed|s|ing)?[- ]ins?': Hand in at once"
    ]
