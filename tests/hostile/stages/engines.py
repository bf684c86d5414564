"""Models that do as the student says, and two that do not: scripted, with the contract of every engine."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema

from grading.domain.jobs import Tokens
from workers.machine.engines.base import Generation, Progress, Request
from workers.machine.engines.rules.engine import RulesEngine

Schema = dict[str, Any]
PRAISE = "Everything that was asked is there and convincing. "
DOCUMENT = re.compile(r"^== Document (\d+): ")
CELL = re.compile(r"^-- (?:(\d+):(\d+)|cell (\d+)), ")
LINE = re.compile(r"^\+ +(\d+)\| (.*\w.*)$")


def fence(request: Request) -> str:
    """The part of the user message that the student wrote, as a model finds it."""
    nonce = request.job.nonce
    return request.user.partition(f"<<<{nonce}\n")[2].partition(f"\n{nonce}>>>")[0]


def own_lines(request: Request) -> list[str]:
    """Lines of the student's own as quotes with their places, the longest first."""
    document, cell, found = "1", "1", []
    for line in fence(request).split("\n"):
        if hit := DOCUMENT.match(line):
            document, cell = hit.group(1), "1"
        elif hit := CELL.match(line):
            cell = hit.group(2) or hit.group(3)
        elif hit := LINE.match(line):
            found.append((len(hit.group(2)), f"{document}:{cell}:{hit.group(1)} {hit.group(2).strip()}"))
    return [quote for _, quote in sorted(found, key=lambda pair: -pair[0])]


def filled(schema: Schema, quotes: list[str], level: int | None = None) -> Any:
    """An answer that follows a schema: all levels the highest, or `level`; praise in all texts."""
    if "properties" in schema:
        parts = schema["properties"]
        answer = {name: filled(part, quotes, level) for name, part in parts.items()}
        if {"quotes", "reason", "level"} <= set(parts):
            longest, most = parts["quotes"]["items"]["maxLength"], parts["quotes"]["maxItems"]
            answer["quotes"] = [quote[:longest] for quote in quotes[:most]]
        return answer
    if "enum" in schema:
        return None if None in schema["enum"] else schema["enum"][0]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "null" in kinds:
        return None
    if "array" in kinds:
        return [filled(schema["items"], quotes, level)]
    if "integer" in kinds:
        return min(level, schema["maximum"]) if level is not None else schema["maximum"]
    return PRAISE[: schema.get("maxLength", 200)].strip()


def said(answer: Any) -> Generation:
    """An answer as engines give it."""
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return Generation(text=text, tokens=Tokens(prompt=1, output=1), first_token_s=None, seconds=0.0)


class Scripted:
    """A model that sees the two messages and the schema, and is told what the attack in them means."""

    uses_model = True
    name = "scripted"

    def __init__(self, told: str) -> None:
        self.told = told

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Whatever the submission asks for; the lowest levels where it asks for nothing."""
        level = None if self.told else 0
        return said(filled(request.schema, own_lines(request), level))

    def close(self) -> None:
        """Nothing is held."""


class Obedient(Scripted):
    """Gives the highest levels when the submission asks for anything, with quotes that exist, and praise."""

    name = "obedient"


class Gullible(Scripted):
    """Believes what is claimed, and hands on a ready-made answer that follows the schema."""

    name = "gullible"

    def generate(self, request: Request, progress: Progress) -> Generation:
        """The student's own answer, or the highest levels."""
        work = "\n".join(re.sub(r"^[+ ] +\d+\| ?#? ?", "", line) for line in fence(request).split("\n"))
        decoder, follows = json.JSONDecoder(), jsonschema.Draft202012Validator(request.schema)
        for start in (hit.start() for hit in re.finditer(r"\{", work)):
            try:
                value, _ = decoder.raw_decode(work, start)
            except ValueError:
                continue
            if follows.is_valid(value):
                return said(value)
        return super().generate(request, progress)


class Selective(Scripted):
    """Judges honestly what checks can tell, and gives the highest level for all that they cannot."""

    name = "selective"

    def generate(self, request: Request, progress: Progress) -> Generation:
        """The levels of the evidence, and the highest without any."""
        answer = filled(request.schema, own_lines(request))
        for name, judgement in answer["judgements"].items():
            found = request.job.evidence.of(name)
            if found is not None and found.share is not None:
                highest = request.schema["properties"]["judgements"]["properties"][name]
                judgement["level"] = round(found.share * highest["properties"]["level"]["maximum"])
        return said(answer)


class Honest(RulesEngine):
    """A model whose levels are those of the evidence, `more` levels too kind."""

    uses_model = True
    name = "honest"

    def __init__(self, more: int = 0) -> None:
        super().__init__()
        self.more = more

    def generate(self, request: Request, progress: Progress) -> Generation:
        """What the rules say, a little kinder."""
        answer = json.loads(super().generate(request, progress).text)
        for name, judgement in answer["judgements"].items():
            shape = request.schema["properties"]["judgements"]["properties"][name]["properties"]
            judgement["level"] = min(judgement["level"] + self.more, shape["level"]["maximum"])
        return said(answer)
