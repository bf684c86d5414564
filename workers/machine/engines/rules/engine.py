"""The engine without a model: evidence and static analysis become levels, findings and written feedback."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from grading.domain.document import Location
from grading.domain.errors import Cancelled, EngineError, JobInvalid
from grading.domain.jobs import Job, Tokens
from grading.domain.rubric import Criterion
from grading.domain.stages import STAGES
from workers.machine.engines.base import Generation, Progress, Request
from workers.machine.engines.rules.facts import Facts, Nouns, cites, join_within, kinds, listed
from workers.machine.engines.rules.findings import Advice, Remark, passed_sentence, remarks, remarks_on_tests
from workers.machine.engines.rules.levels import Judged, about_documentation, judge, reason
from workers.machine.messages import ENGINE_CLOSED

_DISTINCT = 200


def standing(job: Job) -> tuple[Judged, ...]:
    """Every criterion of the rubric, judged."""
    return tuple(judge(job, criterion) for criterion in job.rubric.criteria)


def summary(facts: Facts, judged: tuple[Judged, ...], found: list[Remark]) -> Iterator[str]:
    """Sentences of the technical summary, the most telling first."""
    if not facts.code and not facts.prose:
        starter = "; it is the same as the starter" if facts.says_something else ""
        yield f"The submission has no lines of your own yet{starter}."
        return
    full = [j for j in judged if j.share >= 1]
    low = [j for j in judged if j.share <= 0.25]
    calls = f", using {listed(f'{c}()' for c in facts.calls)}" if facts.calls else ""
    yield f"You wrote {_count(len(facts.coded), 'line')} of code{calls}."
    yield f"{len(full)} of {_count(len(judged), 'criterion', 'criteria')} {_are(len(full))} fully met."
    if low:
        yield f"You can gain the most points in {listed(_title(j) for j in low)}."
    grave = [r for r in found if r.severity == "major"]
    if grave:
        yield f"Most important to fix: {grave[0].title[0].lower()}{grave[0].title[1:]}."
    elif facts.outputs:
        yield f"{_count(facts.outputs, 'cell')} with your code {_verb(facts.outputs)} a result."


def strengths(facts: Facts, judged: tuple[Judged, ...]) -> Iterator[str]:
    """What went well, each with something to recognise it by."""
    for one in judged:
        if one.share < 1:
            continue
        with_what = f", with {listed((f'{c}()' for c in one.used), 2)}" if one.used else ""
        yield f"{one.criterion.title}: complete{with_what}."
    if facts.code and not (facts.errors or facts.not_run or facts.run_here) and facts.outputs:
        yield "Every cell with your code was run before you submitted it and shows no error."
    if facts.comments >= 3:
        yield f"{facts.comments} lines have a comment, so a reader can follow your work."


def achieved(job: Job, facts: Facts, judged: tuple[Judged, ...]) -> Iterator[str]:
    """What the student reached, in their own terms."""
    title = job.material.title
    if not facts.code and not facts.prose:
        still = "is still the starter" if facts.says_something else "has no code and no text of your own"
        yield f"Your submission for {title} {still}, so there is nothing to give feedback on yet."
        yield "Start with the first task."
        return
    placed = [j for j in judged if j.criterion.where is not None] or judged
    ranked = sorted(placed, key=lambda j: -j.share * j.criterion.points)
    top = [j for j in ranked if j.share >= 0.75][:2]
    telling = dict.fromkeys(c for j in judged if j.share >= 0.5 for c in j.used)
    if facts.calls:
        calls = _telling((*telling, *(c for c in facts.calls if c.rpartition(".")[2] not in telling)))
        yield f"In {title} you use {listed((f'{c}()' for c in calls), 4)} in your code."
    else:
        yield f"In {title} you began to write your own answers."
    if top:
        yield f"Your best part is {listed(_title(j) for j in top)}."
    elif ranked and ranked[0].share > 0:
        yield f"Your best part so far is {_title(ranked[0])}."
    if facts.outputs and not facts.errors:
        shown = f"{_count(facts.outputs, 'cell')} {_verb(facts.outputs)} a result"
        yield f"{shown}, so others can check your work."


def reflection(facts: Facts, criteria: tuple[Criterion, ...], nouns: Nouns) -> Iterator[str]:
    """An answer to what the student wrote, with one of their own sentences."""
    # where nothing is asked for in words, comments are what there is to answer
    documents = all(about_documentation(c) for c in criteria)
    if not facts.sentences:
        yield from _unanswered(facts, documents, nouns)
        return
    own = _telling_sentence(facts)
    yield f'You write: "{own}"'
    if documents and not facts.written:
        yield f"Your comments explain what your {kinds(facts) or 'code'} are for."
        if not facts.reasons:
            yield "Also explain why you chose this solution where that is not obvious."
        return
    if facts.reasons >= 2:
        yield "You explain not only what you found, but also why it matters."
    elif facts.reasons == 1:
        yield "You give one reason. A second, different reason would make your answer stronger."
    else:
        yield "Add the reason: explain why it is so."
    if any(c.isdigit() for s in facts.sentences for c in s):
        yield "Your numbers support your answer."
    else:
        beside = "one number from your results" if nouns.data else f"a {nouns.step} or a result of your work"
        yield f"Support it with {beside}."
    if len(facts.words) < 40:
        yield f"With {len(facts.words)} words, your answer is short. Add what you would do differently."


def _unanswered(facts: Facts, documents: bool, nouns: Nouns) -> Iterator[str]:
    if documents:
        yield f"No comment of yours explains what your {kinds(facts) or 'steps'} are for."
        yield "Write one sentence above each of them."
        return
    yield "There is no answer to the reflection questions in your own words."
    topic = "surprised you in the data" if nouns.data else "was harder or easier than you expected"
    yield f"Two or three sentences about what {topic} are enough to start."


def practice(facts: Facts, found: list[Remark], nouns: Nouns) -> Iterator[str]:
    """How the work would hold up in a company."""
    if not facts.code:
        asked = "figure is how you got it" if nouns.data else "result is how you got it"
        yield f"At work, the first question about any {asked}; the code shows it."
        return
    titles = {r.title for r in found}
    if any("error" in t or "not run" in t or "parse" in t for t in titles):
        yield "A colleague who runs this from top to bottom would get an error."
        yield "Running everything once before you share it takes a minute and saves them an hour."
    elif nouns.data and any("missing" in t or "NA" in t for t in titles):
        yield "Real data has missing values, and a manager will ask what you did with them."
        yield "State in one line how many rows you removed and why."
    else:
        yield f"A colleague could run these {_count(len(facts.coded), 'line')} again next month."
        if nouns.data:
            change = "the new file has a column renamed or an unexpected value"
        else:
            change = f"a {nouns.step} gets an unexpected value, such as an empty one"
        yield f"Ask yourself what happens when {change}."
    if "Absolute path" in titles or "setwd() in the code" in titles:
        yield "Only the absolute path would stop them."
    if not facts.comments:
        yield "A few comments that explain why, not what, would help them."


def develop(judged: tuple[Judged, ...], found: list[Remark], limit: int) -> Iterator[str]:
    """What to work on, `limit` characters each: the criteria with the most to gain, then the code."""
    by_gain = sorted(judged, key=lambda j: (1 - j.share) * j.criterion.points, reverse=True)
    for one in by_gain:
        if one.share >= 0.75:
            break
        if one.lacking:
            name = f"{one.criterion.title}:"
            yield join_within([name, *one.lacking], limit) if len(name) < limit else name[:limit]
            continue
        goal = one.criterion.levels[min(one.level + 1, one.criterion.highest)].rstrip(".")
        yield f"{one.criterion.title}: the next level is '{goal}'."
    for remark in found:
        if remark.advice is not None:
            yield f"{remark.advice.what}: {remark.advice.why[0].lower()}{remark.advice.why[1:]}"


def next_step(facts: Facts, judged: tuple[Judged, ...], found: list[Remark], nouns: Nouns) -> Iterator[str]:
    """One small thing to do now."""
    grave = next((r for r in found if r.severity == "major" and r.advice is not None), None)
    if not facts.code and not facts.prose:
        first = "the one line that loads the data" if nouns.data else f"the smallest {nouns.step} it asks for"
        yield f"Open the first task, write {first}, and run it."
    elif grave is not None and grave.advice is not None:
        yield f"{grave.advice.what}. {grave.advice.how}"
    else:
        low = min(judged, key=lambda j: (j.share, -j.criterion.points), default=None)
        if low is not None and low.share < 1:
            yield f"Go back to '{low.criterion.title}' and work on it for half an hour."
        else:
            yield (
                "Try the same steps on another table, and check which of them still work."
                if nouns.data
                else f"Add one {nouns.step} as an exercise, and check what else must change."
            )
    example = next((r.advice.example for r in found if r.advice is not None and r.advice.example), "")
    if example and grave is None and facts.code:
        yield f"Example: {example}"


def _telling(calls: tuple[str, ...]) -> list[str]:
    """Without the names that every program has, unless there are no others."""
    plain = {"mean", "sum", "min", "max", "head", "nrow", "ncol", "round", "sorted", "open", "set", "dict"}
    plain |= {"dim", "setwd", "attach", "values", "items", "keys", "get", "append", "add", "is.na", "unique"}
    return [c for c in calls if c not in plain] or list(calls)


def _telling_sentence(facts: Facts) -> str:
    """The sentence with numbers, reasons and words that fits best, in full."""

    def weight(sentence: str) -> tuple[int, int]:
        signs = any(c.isdigit() for c in sentence) + cites(sentence, facts.names)
        return signs, min(len(sentence), 140)

    short = [s for s in facts.sentences if len(s) <= _DISTINCT] or [facts.sentences[0][:_DISTINCT]]
    return max(short, key=weight).rstrip().replace('"', "'")


def _title(judged: Judged) -> str:
    return f"'{judged.criterion.title}'"


def _count(number: int, noun: str, more: str = "") -> str:
    return f"{number} {noun if number == 1 else more or noun + 's'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _verb(number: int) -> str:
    return "shows" if number == 1 else "show"


def criteria_facts(job: Job, criteria: tuple[Criterion, ...]) -> Facts:
    """The facts of the cells these criteria look at; of the whole submission when none names a place."""
    places = [c.where for c in criteria if c.where is not None]
    return Facts.of(job, "|".join(f"(?:{p})" for p in places)) if places else Facts.of(job)


def texts(sentences: Iterator[str], most: int, limit: int) -> list[str]:
    """At most `most` different texts of at most `limit` characters, longer ones passed over."""
    kept = [s for s in dict.fromkeys(sentences) if join_within([s], limit)]
    return kept[:most]


Schema = dict[str, Any]
VERSION = "rules/3"


class RulesEngine:
    """Answers from the job alone, in milliseconds and always the same.

    Of stages other than analysis and feedback it judges the criteria; their texts stay empty.
    """

    name = "rules"
    uses_model = False

    def __init__(self) -> None:
        self._closed = False

    def generate(self, request: Request, progress: Progress) -> Generation:
        """The stage's answer as JSON that follows the schema; JobInvalid for a stage without a row."""
        started = time.monotonic()
        if self._closed:
            raise EngineError(ENGINE_CLOSED)
        if request.cancel.cancelled:
            raise Cancelled
        if request.job.stage not in STAGES:
            raise JobInvalid(f"The rules engine has no rules for the stage {request.job.stage!r}")
        answer = _ANSWERS.get(request.job.stage, _judgements_only)
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
    judged = standing(job)
    own = tuple(j for j in judged if j.criterion.stage == job.stage)
    return {
        "judgements": _judgements(job, judged, schema["judgements"]),
        "summary": join_within(
            [*summary(facts, own, found), *passed_sentence(job)], _limit(schema["summary"])
        ),
        "strengths": _texts(strengths(facts, own), schema["strengths"]),
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
    return texts(sentences, _most(schema), _limit(schema["items"]))


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
    judged = standing(job)
    spoken = criteria_facts(job, job.rubric.of_stage(job.stage))
    nouns = Nouns.of(facts)
    technical = tuple(j for j in judged if j.criterion.stage != job.stage) or judged
    thinking = tuple(j for j in judged if j.criterion.stage == job.stage)

    def said(name: str, sentences: Any) -> str:
        return join_within(sentences, _limit(schema[name]))

    return {
        "judgements": _judgements(job, judged, schema["judgements"]),
        "achieved": said("achieved", [*achieved(job, facts, technical), *passed_sentence(job)]),
        "reflection": said("reflection", reflection(spoken, job.rubric.of_stage(job.stage), nouns)),
        "strengths": _texts(strengths(facts, (*thinking, *technical)), schema["strengths"]),
        "practice": said("practice", practice(facts, found, nouns)),
        "develop": _texts(
            develop((*thinking, *technical), found, _limit(schema["develop"]["items"])),
            schema["develop"],
        ),
        "next_step": said("next_step", next_step(facts, technical, found, nouns)),
    }


def _judgements_only(job: Job, schema: dict[str, Schema]) -> dict[str, Any]:
    """Of a stage without rules of its own: its criteria are judged, its texts and lists stay empty."""
    return {
        **{name: [] if part["type"] == "array" else "" for name, part in schema.items()},
        "judgements": _judgements(job, standing(job), schema["judgements"]),
    }


_ANSWERS: Mapping[str, Callable[[Job, dict[str, Schema]], dict[str, Any]]] = MappingProxyType(
    {"analysis": _analysis, "feedback": _feedback}
)
