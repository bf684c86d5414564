"""Plant gaps in rubrics of real submissions, and see whether their questions come first.

Usage: python scripts/real_questions.py FOLDER [--seeds N]

FOLDER holds refactory/question_*/{correct,wrong}/*.py with reference/reference.py. Of each question, each
pair of functions of which many programs call one and others call the other becomes a gap: the rubric names
the one, and the model, which judges by the labels of the data set but for noise, takes both. Exits 1 if the
question of a gap is not among the first three.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from grading.checks import collect
from grading.checks.kinds.code import Defines, Uses
from grading.checks.scope import Scopes
from grading.documents import SubmittedFiles, UploadedFile, read, set_apart
from grading.documents.limits import Limits
from grading.domain.document import Document
from grading.domain.jobs import Provenance, Result
from grading.domain.report import Report
from grading.domain.rubric import Criterion, Rubric
from grading.scoring import combine
from grading.similarity.rubric_names import names_at
from grading.statistics.question_groups import Cause
from grading.store import Store, schema, tables
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.submissions import intake
from grading.store.submissions.intake import IncomingSubmission
from grading.store.trust import questions

FEWEST_NAMED, FEWEST_INSTEAD = 15, 7
"""Programs that call the one, and that call the other without it, from which on there is a gap to plant."""
NOISE = 0.1
"""Criteria that the model judges at random."""
FIRST = 3


@dataclass(frozen=True)
class Program:
    """A student's program; `correct` is the data set's label."""

    files: SubmittedFiles
    documents: tuple[Document, ...]
    correct: bool
    calls: frozenset[str]


def programs_of(question: Path) -> list[Program]:
    """All programs of a question."""
    return [
        _program(file, correct=kind == "correct")
        for kind in ("correct", "wrong")
        for file in sorted((question / kind).glob("*.py"))
    ]


def _program(file: Path, *, correct: bool) -> Program:
    files = read([UploadedFile("work.py", file.read_bytes())], Limits())
    documents = set_apart(files.documents, ())
    names = names_at(Scopes(documents).find().added)
    return Program(files, documents, correct, frozenset(name for name in names if name.endswith("()")))


def gaps(programs: Sequence[Program]) -> Iterator[tuple[str, str]]:
    """Pairs of a name for the rubric and one that counts as well."""
    every = sorted({name for one in programs for name in one.calls})
    for named, instead in permutations(every, 2):
        has = sum(named in one.calls for one in programs)
        other = sum(instead in one.calls and named not in one.calls for one in programs)
        both = sum(instead in one.calls and named in one.calls for one in programs)
        # what stands beside the named one as often is no other way
        if has >= FEWEST_NAMED and other >= FEWEST_INSTEAD and both * 4 < has:
            yield named, instead


def rubric_of(question: Path, named: str) -> Rubric:
    """The functions asked for, the way that the rubric names, and two criteria that a model alone judges."""
    tree = ast.parse((question / "reference" / "reference.py").read_text())
    asked = tuple(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    way = Uses(all_of=(named.removesuffix("()"),))
    return Rubric(
        criteria=(
            Criterion(id="functions", title="The functions", points=4, checks=(Defines(all_of=asked),)),
            Criterion(id="way", title="The way", points=4, checks=(way,)),
            Criterion(id="branches", title="Branches", points=2, checks=(Uses(all_of=("if",)),)),
            Criterion(id="style", title="Style", points=2),
        )
    )


def report_of(one: Program, rubric: Rubric, gap: tuple[str, str], chance: random.Random) -> Report:
    """The checks with a model that judges by the label and takes both names, but for noise."""
    evidence = collect(one.documents, rubric)
    levels = {}
    for criterion in rubric.criteria:
        found = evidence.of(criterion.id)
        share = found.share if found is not None and found.share is not None else 0.5 + one.correct / 2
        right = bool(set(gap) & one.calls) if criterion.id == "way" else share >= 0.5
        noisy = chance.random() < NOISE
        levels[criterion.id] = chance.randint(0, criterion.highest) if noisy else criterion.highest * right
    judged = [{"criterion": name, "level": level} for name, level in levels.items()]
    origin = Provenance(machine="m", engine="planted", model="planted", uses_model=True)
    told = Result(
        run_id="r", round_id="r", stage="analysis", ok=True, output={"judgements": judged}, provenance=origin
    )
    return combine(rubric, evidence, {"analysis": told}, {}, one.documents)


def place_of_gap(programs: Sequence[Program], rubric: Rubric, gap: tuple[str, str], seed: int) -> int | None:
    """At which place the gap's question stands, from 1."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        store = Store(f"sqlite:///{name}/questions.db")
        schema.upgrade(store.engine.url.render_as_string(hide_password=False))
        with store.write() as session:
            new = NewVersion("gap", "Gap", "python", "after_review", f"{gap}", rubric)
            assignment, _, _ = versions.import_version(session, "real", new)
            for number, one in enumerate(programs):
                student = users.find_or_create_student(
                    session, "local", f"s{number}", "", "", assignment.course_id
                )
                work = IncomingSubmission(assignment.id, student.id, "api", one.files)
                made = intake.accept_submission(session, work)
                found = report_of(one, rubric, gap, chance)
                round_ = session.get_one(tables.Round, made.round_id)
                round_.state = found.status.value
                session.add(
                    tables.Grade(
                        round_id=round_.id, submission_id=made.submission_id, points=found.points,
                        points_so_far=found.points_so_far, final_points=found.points,
                        max_points=found.max_points, held=found.held,
                        report=found.model_dump(mode="json"), created_at=round_.created_at,
                    )
                )  # fmt: skip
        with store.read() as session:
            asked = [one.group.cause for one in questions.find_questions(session, assignment.id)]
        store.close()
    wanted = Cause("name", *gap)
    return asked.index(wanted) + 1 if wanted in asked else None


def main() -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    places: list[int | None] = []
    for question in sorted((options.folder / "refactory").glob("question_*")):
        programs = programs_of(question)
        for gap in gaps(programs):
            rubric = rubric_of(question, gap[0])
            began = time.monotonic()
            mine = [place_of_gap(programs, rubric, gap, seed) for seed in range(options.seeds)]
            each = (time.monotonic() - began) / options.seeds
            only = sum(gap[1] in one.calls and gap[0] not in one.calls for one in programs)
            print(
                f"{question.name}: the rubric names {gap[0]}, {only} of {len(programs)} programs use "
                f"{gap[1]}: places {mine}, {each:.1f} s each"
            )
            places += mine
    first = sum(place is not None and place <= FIRST for place in places)
    print(f"among the first {FIRST}: {first} of {len(places)}")
    return 0 if places and first == len(places) else 1


if __name__ == "__main__":
    sys.exit(main())
