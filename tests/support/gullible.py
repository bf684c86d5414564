"""Graders that are gullible on purpose, and one that is not: what a stress test must find out."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from grading.checks import collect
from grading.documents import UploadedFile, read, set_apart
from grading.domain.jobs import Job, Material, Tokens
from grading.domain.report import Report
from grading.domain.rubric import Rubric
from grading.domain.stages import stages_of
from grading.scoring import combine
from grading.statistics.stress_test import TOTAL, Trial
from grading.store.trust.stress_tests import row_of
from grading.stress_tests import catalogue
from grading.stress_tests.catalogue import Planned
from grading.stress_tests.variant import Documents, Setting
from workers.machine.engines.base import Engine, Generation, Progress, Request
from workers.machine.engines.rules.engine import RulesEngine
from workers.machine.stages import run_stage

SAMPLES = Path(__file__).parents[2] / "samples"
ASKS = re.compile(
    r"\b(?:grader|grading|graded?|marks?|points?|levels?|rubric|criteri\w+|evaluat\w+|reviewer|score|full|top"
    r"|perfect|best|maximum|highest|model|system|assistant|judgements?|instruct\w+)\b",
    re.IGNORECASE,
)
FLATTERS = re.compile(r"\b(?:excellent|outstanding|elegant|professional|hervorragend)\b", re.IGNORECASE)
UNCHECKED = 0.3
"""Share of the levels for what no check looks at."""
OWN_LINE = re.compile(r"^\+ +\d+\| (.*)$", re.MULTILINE)


class Biased(RulesEngine):
    """A model that judges by the checks, and by what has nothing to do with the work."""

    uses_model = True
    name = "biased"

    def more(self, work: str, request: Request) -> float:
        """Levels by which it is swayed; `work` has all that the student wrote, and outputs."""
        return 0.0

    def generate(self, request: Request, progress: Progress) -> Generation:
        """The levels of the rules, swayed."""
        answer = json.loads(super().generate(request, progress).text)
        nonce = request.job.nonce
        work = request.user.partition(f"<<<{nonce}\n")[2].partition(f"\n{nonce}>>>")[0]
        more = round(self.more(work, request))
        for name, judgement in answer["judgements"].items():
            most = request.schema["properties"]["judgements"]["properties"][name]["properties"]["level"]
            found = request.job.evidence.of(name)
            share = found.share if found is not None and found.share is not None else UNCHECKED
            judgement["level"] = min(round(share * most["maximum"]) + more, most["maximum"])
        text = json.dumps(answer, ensure_ascii=False)
        return Generation(text=text, tokens=Tokens(prompt=1, output=1), first_token_s=None, seconds=0.0)


class FollowsInstructions(Biased):
    """Gives a level more where much of what was written is about grading."""

    name = "follows instructions"

    def more(self, work: str, request: Request) -> float:
        """One for three words."""
        own = " ".join(OWN_LINE.findall(work)) + " ".join(request.job.documents[0].path.split("_"))
        return 1.0 if len(ASKS.findall(own)) >= 3 else 0.0


class Flattered(Biased):
    """Gives a level more where the work praises itself."""

    name = "flattered"

    def more(self, work: str, request: Request) -> float:
        """One for a word of praise."""
        return 1.0 if FLATTERS.search(work) else 0.0


class CountsKeywords(Biased):
    """Gives more the more words of the rubric stand in the work."""

    name = "counts keywords"

    def more(self, work: str, request: Request) -> float:
        """Up to two, above half of the words."""
        texts = " ".join(f"{one.title} {one.description}" for one in request.job.rubric.criteria)
        words = {word.casefold() for word in re.findall(r"[^\W\d_]{4,}", texts)}
        found = {word.casefold() for word in re.findall(r"[^\W\d_]{4,}", work)}
        return 4 * max(0.0, len(words & found) / max(1, len(words)) - 0.5)


class CountsLength(Biased):
    """Gives more the longer the work is."""

    name = "counts length"

    def more(self, work: str, request: Request) -> float:
        """One for a hundred words."""
        return len(" ".join(OWN_LINE.findall(work)).split()) / 100


PLANTED: dict[type[Biased], str] = {
    FollowsInstructions: "instructions",
    Flattered: "praise",
    CountsKeywords: "keywords",
    CountsLength: "length",
}
"""Each with the beginning of the lines at which it must be found out."""


@dataclass(frozen=True)
class SampleClass:
    """A sample assignment with its submissions, for gradings without a server."""

    title: str
    setting: Setting
    works: dict[str, Documents]


@cache
def sample_class(slug: str) -> SampleClass:
    """One of the repository's sample assignments; without the submission that has an attack in it."""
    folder = SAMPLES / "assignments" / slug
    settings = tomllib.loads((folder / "assignment.toml").read_text("utf-8"))
    rubric = Rubric.model_validate({k: settings[k] for k in ("criteria", "equivalents") if k in settings})
    starter, solution = (_documents(sorted((folder / part).iterdir())) for part in ("starter", "solution"))
    tests = folder / "tests"
    texts = tuple(path.read_text("utf-8") for path in sorted(tests.iterdir())) if tests.is_dir() else ()
    works = {
        path.name: _documents([path])
        for path in sorted((SAMPLES / "submissions" / slug).iterdir())
        if "manipulative" not in path.name
    }
    setting = Setting(rubric, starter, set_apart(solution, starter), texts)
    return SampleClass(settings["title"], setting, works)


def _documents(paths: Sequence[Path]) -> Documents:
    return read([UploadedFile(path.name, path.read_bytes()) for path in paths]).documents


def report_of(found: SampleClass, documents: Documents, engine: Engine) -> Report:
    """The report of documents on an engine: reading aside, as the server makes it; nothing is executed."""
    setting = found.setting
    own = set_apart(documents, setting.starter)
    evidence = collect(own, setting.rubric, setting.solution)
    results: dict[str, Any] = {}
    for stage in stages_of(setting.rubric):
        job = Job(
            run_id=stage,
            round_id="round",
            stage=stage,
            material=Material(title=found.title),
            rubric=setting.rubric,
            documents=own,
            evidence=evidence,
            nonce="5eed5eed5eed5eed",
            budget_s=60,
            max_output_tokens=1200,
        )
        results[stage] = run_stage(job, engine, "m", "machine-1", lambda *_: None)
        assert results[stage].ok, results[stage].message
    return combine(setting.rubric, evidence, results, {}, own)


def trial(found: SampleClass, source: str, planned: Planned, documents: Documents, engine: Engine) -> Trial:
    """What a variant gets on an engine."""
    report = report_of(found, documents, engine)
    points = {one.criterion: one.points for one in report.criteria}
    return Trial(
        source=source,
        variant=planned.key,
        row=row_of(planned.key, planned.family),
        expects=planned.expects,
        points={**points, TOTAL: report.points_so_far},
        held=report.held,
        criterion=planned.criterion,
    )


def trials(found: SampleClass, engine: Engine, seed: int) -> Iterator[Trial]:
    """A stress test of an engine without a server, before the worst are recombined."""
    for number, (source, documents) in enumerate(found.works.items()):
        for planned in catalogue.plan(found.setting, seed, number, len(found.works)):
            made = catalogue.make(planned, documents, found.setting, seed, source)
            if made is not None:
                yield trial(found, source, planned, made, engine)
