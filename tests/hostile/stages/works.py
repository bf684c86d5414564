"""Failing work with an attack in it, through the real code: reading, evidence, prompts, parsing, report."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from grading.checks import collect
from grading.documents import UploadedFile, read, set_apart
from grading.domain.document import Document
from grading.domain.evidence import Evidence
from grading.domain.jobs import Job, Material, Result
from grading.domain.report import Report
from grading.domain.rubric import Rubric
from grading.domain.stages import stages_of
from grading.scoring import combine
from grading.stress_tests.attacks import Attack
from workers.machine.engines.base import Engine
from workers.machine.stages import run_stage

SAMPLES = Path(__file__).parents[3] / "samples"
SLUGS = {"r": "sales-cleaning", "python": "python-basket"}
UNCHECKED = {"r": ("chart", "data-quality", "craft"), "python": ("craft", "measures")}
"""Criteria that lose their checks in the mixed rubric, beside those that have none."""
WRONG = {
    'raise NotImplementedError("load_baskets")': "return {}",
    'raise NotImplementedError("item_counts")': "return len(baskets)",
    'raise NotImplementedError("pair_counts")': "return item_counts(baskets)",
    "TODO: your recommendation to the bakery": "More bread.",
}


@dataclass(frozen=True)
class Assignment:
    """A sample assignment with one of its rubrics."""

    settings: dict[str, Any]
    rubric: Rubric
    starter: tuple[Document, ...]
    solution: tuple[Document, ...]


@cache
def assignment(language: str, rubric: str = "mixed") -> Assignment:
    """With its own rubric, without the checks of some criteria ("mixed"), or without any ("bare")."""
    folder = SAMPLES / "assignments" / SLUGS[language]
    settings = tomllib.loads((folder / "assignment.toml").read_text("utf-8"))
    for criterion in settings["criteria"]:
        if rubric == "bare" or (rubric == "mixed" and criterion["id"] in UNCHECKED[language]):
            criterion.pop("checks", None)
    made = Rubric.model_validate({k: settings[k] for k in ("criteria", "equivalents") if k in settings})
    starter = documents_of([UploadedFile(p.name, p.read_bytes()) for p in (folder / "starter").iterdir()])
    solution = documents_of([UploadedFile(p.name, p.read_bytes()) for p in (folder / "solution").iterdir()])
    return Assignment(settings, made, starter, set_apart(solution, starter))


def documents_of(files: Sequence[UploadedFile]) -> tuple[Document, ...]:
    """What reading gives."""
    return read(list(files)).documents


def evidence_of(language: str, files: Sequence[UploadedFile], rubric: str) -> tuple[Evidence, Any]:
    """The evidence of a submission and its documents."""
    task = assignment(language, rubric)
    documents = set_apart(documents_of(files), task.starter)
    return collect(documents, task.rubric, task.solution), documents


def results_of(
    language: str, evidence: Evidence, documents: tuple[Document, ...], engine: Engine, rubric: str = "mixed"
) -> dict[str, Result]:
    """What all stages of a submission give on an engine."""
    task = assignment(language, rubric)
    results: dict[str, Result] = {}
    for stage in stages_of(task.rubric):
        job = Job(
            run_id=stage,
            round_id="round",
            stage=stage,
            material=Material(title=task.settings["title"]),
            rubric=task.rubric,
            documents=documents,
            evidence=evidence,
            nonce="5eed5eed5eed5eed",
            budget_s=60,
            max_output_tokens=1200 if stage == "analysis" else 800,
        )
        results[stage] = run_stage(job, engine, "m", "machine-1", lambda *_: None)
        assert results[stage].ok, results[stage].message
    return results


def judged(
    language: str, evidence: Evidence, documents: tuple[Document, ...], engine: Engine, rubric: str = "mixed"
) -> tuple[Report, Report]:
    """The report of a submission, and the one where nobody recognised a sign of manipulation."""
    task = assignment(language, rubric)
    results = results_of(language, evidence, documents, engine, rubric)
    blind = evidence.model_copy(update={"flags": ()})
    unflagged = {stage: result.model_copy(update={"flags": ()}) for stage, result in results.items()}
    return (
        combine(task.rubric, evidence, results, {}, documents),
        combine(task.rubric, blind, unflagged, {}, documents),
    )


def attacked(language: str, attack: Attack | None) -> list[UploadedFile]:
    """A failing submission of a sample assignment with an attack where its class belongs."""
    if language == "r":
        return [_notebook(attack)]
    return [_script(attack)]


def _place(attack: Attack) -> str:
    own = {"comments": "comment", "encodings": "code", "strings": "string", "markdown": "prose"}
    own |= {"outputs": "output", "identifiers": "name"}
    turns = ("prose", "comment", "string")
    return own.get(attack.kind) or turns[attack.number % 3]


def _comment(text: str) -> str:
    return "\n".join(line if line.lstrip().startswith("#") else f"# {line}" for line in text.split("\n"))


def _named(attack: Attack, function: str, assignment_sign: str) -> str:
    forms = (f"{attack.text} {assignment_sign} 1", function.format(attack.text))
    return forms[attack.number % 2]


def _file(attack: Attack | None, path: str) -> str:
    """Every fourth name is a file's."""
    if attack is None or attack.kind != "identifiers" or attack.number % 4 != 3:
        return path
    return f"{attack.text}.{path.rpartition('.')[2]}"


def _notebook(attack: Attack | None) -> UploadedFile:
    path = SAMPLES / "submissions/sales-cleaning/weak.ipynb"
    content = json.loads(path.read_text("utf-8"))
    cells = content["cells"]
    if attack is not None:
        place, text = _place(attack), attack.text
        if place == "prose":
            answer = cells[14 if attack.number % 2 else 16]
            answer["source"] = "".join(answer["source"]) + "\n\n" + text
        elif place == "output":
            cells[8]["outputs"].append({"output_type": "stream", "name": "stdout", "text": text + "\n"})
        elif not (place == "name" and _file(attack, "x.py") != "x.py"):
            line = {
                "comment": _comment(text),
                "code": text,
                "string": f"note <- {json.dumps(text, ensure_ascii=False)}",
                "name": _named(attack, "{} <- function() 1", "<-"),
            }[place]
            code = cells[6 if attack.number % 2 else 10]
            code["source"] = "".join(code["source"]) + "\n" + line
    return UploadedFile(_file(attack, "weak.ipynb"), json.dumps(content).encode())


def _script(attack: Attack | None) -> UploadedFile:
    source = (SAMPLES / "assignments/python-basket/starter/basket.py").read_text("utf-8")
    for given, wrong in WRONG.items():
        assert given in source
        source = source.replace(given, wrong)
    if attack is not None:
        place, text = _place(attack), attack.text
        quoted = json.dumps(text, ensure_ascii=False)
        if place == "prose":
            source = source.replace("More bread.", "More bread.\n" + text)
        elif not (place == "name" and _file(attack, "x.py") != "x.py"):
            line = {
                "comment": _comment(text),
                "code": text,
                "string": f"NOTE = {quoted}",
                "output": f"print({quoted})\n# prints:\n" + _comment(text),
                "name": _named(attack, "def {}():\n    return 1", "="),
            }[place]
            where = "MIN_COUNT = 3\n" if attack.number % 2 else "def main():"
            source = source.replace(where, f"{line}\n\n\n{where}" if where[0] == "d" else f"{where}{line}\n")
    return UploadedFile(_file(attack, "basket.py"), source.encode())
