"""The engine without a model: evidence and static analysis become levels, findings and written feedback."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from grading.domain.errors import Cancelled, EngineError, JobInvalid
from grading.domain.jobs import Job, Tokens
from grading.domain.model import Location
from workers.machine.engines.base import Generation, Progress, Request
from workers.machine.engines.rules import feedback as write
from workers.machine.engines.rules.facts import Facts, join_within
from workers.machine.engines.rules.findings import remarks
from workers.machine.engines.rules.levels import Judged, reason
from workers.machine.engines.rules.lines import Advice, Remark
from workers.machine.engines.rules.nouns import Nouns
from workers.machine.engines.rules.tests import passed_sentence, remarks_on_tests

Schema = dict[str, Any]
VERSION = "rules/3"


class RulesEngine:
    """Answers from the job alone, in milliseconds and always the same. Knows analysis and feedback."""

    name = "rules"
    uses_model = False

    def __init__(self) -> None:
        self._closed = False

    def generate(self, request: Request, progress: Progress) -> Generation:
        """The stage's answer as JSON that follows the schema; JobInvalid for a stage it has no rules for."""
        started = time.monotonic()
        if self._closed:
            raise EngineError("The engine was closed.")
        if request.cancel.said:
            raise Cancelled
        answer = _ANSWERS.get(request.job.stage)
        if answer is None:
            raise JobInvalid(f"The rules engine has no rules for the stage {request.job.stage!r}")
        properties: dict[str, Schema] = request.schema["properties"]
        text = json.dumps(answer(request.job, properties), ensure_ascii=False)
        progress(len(text) // 4)
        return Generation(
            text=text,
            tokens=Tokens(),
            first_token_s=None,
            seconds=time.monotonic() - started,
            digest=VERSION,
            sampling={"rules": VERSION},
        )

    def close(self) -> None:
        """Nothing to give back; later requests fail."""
        self._closed = True


def _most(schema: Schema) -> int:
    return int(schema.get("maxItems", 3))


def _limit(schema: Schema) -> int:
    return int(schema.get("maxLength", 400))


def _cut(words: str, limit: int) -> str:
    """The beginning up to a blank, so that a quote stays a quote."""
    return words if len(words) <= limit else words[:limit].rpartition(" ")[0] or words[:limit]


def headline(words: str, limit: int) -> str:
    """Cut between two words, with an ellipsis; a name in quotation marks keeps the second one."""
    if len(words) <= limit:
        return words
    cut = words[: limit - 2].rpartition(" ")[0] or words[: limit - 2]
    return f"{cut.rstrip(' ,;:')}…{chr(39) if cut.count(' ' + chr(39)) and words.endswith(chr(39)) else ''}"


def _judgements(job: Job, judged: tuple[Judged, ...], schema: Schema) -> dict[str, Any]:
    """Quotes, reason and level of each criterion of the stage."""
    answer: dict[str, Any] = {}
    for one in judged:
        if one.criterion.stage != job.stage:
            continue
        shape: dict[str, Schema] = schema["properties"][one.criterion.id]["properties"]
        limit = _limit(shape["quotes"]["items"])
        quotes = [_cut(q, limit) for q in one.quotes][: _most(shape["quotes"])]
        answer[one.criterion.id] = {
            "quotes": quotes,
            "reason": reason(one, _limit(shape["reason"])),
            "level": one.level,
        }
    return answer


def _analysis(job: Job, schema: dict[str, Schema]) -> dict[str, Any]:
    facts = Facts.of(job)
    failing, passing = remarks_on_tests(job, (job.stage,))
    found = [*failing, *remarks(facts)]
    grave = [remark for remark in found if remark.severity == "major"]
    others = [remark for remark in found if remark.severity != "major"]
    judged = write.standing(job)
    own = tuple(j for j in judged if j.criterion.stage == job.stage)
    return {
        "judgements": _judgements(job, judged, schema["judgements"]),
        "summary": join_within(
            [*write.summary(facts, own, found), *passed_sentence(job)], _limit(schema["summary"])
        ),
        "strengths": _texts(write.strengths(facts, own), schema["strengths"]),
        "findings": _findings(job, [*grave, *passing, *others, *_praise(own)], schema["findings"]),
        "suggestions": _suggestions(found, schema["suggestions"]),
    }


def _praise(judged: tuple[Judged, ...]) -> list[Remark]:
    """For criteria met in full, the line that shows it."""
    return [
        Remark(
            "praise",
            f"{one.criterion.title}: done",
            f"The check '{one.met[0].label}' is met here.",
            one.met[0].location,
        )
        for one in judged
        if one.share >= 1 and one.met and one.met[0].label
    ]


def _texts(sentences: Any, schema: Schema) -> list[str]:
    return write.texts(sentences, _most(schema), _limit(schema["items"]))


def _findings(job: Job, found: list[Remark], schema: Schema) -> list[dict[str, Any]]:
    shape: dict[str, Schema] = schema["items"]["properties"]
    return [
        {
            "severity": remark.severity,
            "title": headline(remark.title, _limit(shape["title"])),
            "detail": _cut(remark.detail, _limit(shape["detail"])),
            "at": _at(job, remark.location),
        }
        for remark in found[: _most(schema)]
    ]


def _at(job: Job, place: Location | None) -> str | None:
    """A place as `document:cell:line`, counted from 1; 0 for what is not given."""
    for number, document in enumerate(job.documents, start=1):
        if place is not None and document.path == place.document:
            cell = place.cell if document.kind == "notebook" else 1
            return f"{number}:{cell or 0}:{place.line or 0}"
    return None


def _suggestions(found: list[Remark], schema: Schema) -> list[dict[str, str]]:
    shape: dict[str, Schema] = schema["items"]["properties"]
    advice: dict[str, Advice] = {}
    for remark in found:
        if remark.advice is not None:
            advice.setdefault(remark.advice.what, remark.advice)
    return [
        {
            **{name: _cut(getattr(one, name), _limit(shape[name])) for name in ("what", "why", "how")},
            "example": one.example[: _limit(shape["example"])],
        }
        for one in advice.values()
    ][: _most(schema)]


def _feedback(job: Job, schema: dict[str, Schema]) -> dict[str, Any]:
    facts = Facts.of(job)
    failing, _ = remarks_on_tests(job)
    found = [*failing, *remarks(facts)]
    judged = write.standing(job)
    spoken = write.criteria_facts(job, job.rubric.of_stage(job.stage))
    nouns = Nouns.of(facts)
    technical = tuple(j for j in judged if j.criterion.stage != job.stage) or judged
    thinking = tuple(j for j in judged if j.criterion.stage == job.stage)

    def said(name: str, sentences: Any) -> str:
        return join_within(sentences, _limit(schema[name]))

    return {
        "judgements": _judgements(job, judged, schema["judgements"]),
        "achieved": said("achieved", [*write.achieved(job, facts, technical), *passed_sentence(job)]),
        "reflection": said("reflection", write.reflection(spoken, job.rubric.of_stage(job.stage), nouns)),
        "strengths": _texts(write.strengths(facts, (*thinking, *technical)), schema["strengths"]),
        "practice": said("practice", write.practice(facts, found, nouns)),
        "develop": _texts(
            write.develop((*thinking, *technical), found, _limit(schema["develop"]["items"])),
            schema["develop"],
        ),
        "next_step": said("next_step", write.next_step(facts, technical, found, nouns)),
    }


_ANSWERS: Mapping[str, Callable[[Job, dict[str, Schema]], dict[str, Any]]] = MappingProxyType(
    {"analysis": _analysis, "feedback": _feedback}
)
