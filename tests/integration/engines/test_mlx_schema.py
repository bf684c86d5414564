"""Random weights under the real stage schemas of the samples: every answer is valid and complete."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bench.tiny_models import Kind, make_model
from grading.documents import UploadedFile, read, set_apart
from grading.domain.errors import OutputInvalid
from grading.domain.evidence import Evidence
from grading.domain.jobs import Job, Material
from grading.domain.rubric import Rubric
from tests.support.engines import ask, quiet
from workers.machine.engines import Generation, Request
from workers.machine.engines.mlx.constraint import Constraint, Following
from workers.machine.engines.mlx.engine import MlxEngine
from workers.machine.engines.mlx.model import load_model
from workers.machine.stages import known_stages
from workers.machine.stages.base import require_words

ASSIGNMENTS = Path(__file__).parents[3] / "samples" / "assignments"
SLUGS = ("python-basket", "sales-cleaning")
KINDS: tuple[Kind, ...] = ("llama", "qwen2", "qwen3")
LIMITS = {"analysis": 1200, "feedback": 800}
"""As config.toml ships them."""


@cache
def sample_job(slug: str, stage: str) -> Job:
    """A job about an assignment's own solution, submitted as if a student had."""
    folder = ASSIGNMENTS / slug
    settings = tomllib.loads((folder / "assignment.toml").read_text("utf-8"))

    def files(name: str) -> list[UploadedFile]:
        return [UploadedFile(path.name, path.read_bytes()) for path in sorted((folder / name).iterdir())]

    starter = read(files("starter")).documents
    return Job(
        run_id="run",
        round_id="round",
        stage=stage,
        material=Material(title=settings["title"], task=(folder / "task.md").read_text("utf-8")),
        rubric=Rubric.model_validate({k: settings[k] for k in ("criteria", "equivalents") if k in settings}),
        documents=set_apart(read(files("solution")).documents, starter),
        evidence=Evidence(),
        nonce="5eed5eed",
        budget_s=600,
        max_output_tokens=LIMITS[stage],
    )


@pytest.fixture(scope="module")
def engine() -> Iterator[MlxEngine]:
    engine = MlxEngine(slots=8)
    yield engine
    engine.close()


def requests(models: list[Path], count: int, limits: dict[str, int]) -> list[Request]:
    """Stages, assignments and models in turn, real schemas; random weights read no prompts."""
    made = []
    for n in range(count):
        stage = known_stages()[sorted(known_stages())[n % 2]]
        job = sample_job(SLUGS[n // 2 % 2], stage.name)
        made.append(
            Request(
                job=job,
                model=str(models[n % len(models)]),
                system="You grade.",
                user=f"+ 1| x = {n}",
                schema=stage.schema(job),
                max_output_tokens=limits[stage.name],
                temperature=(0.3, 0.7, 1.0)[n % 3],
                deadline_s=3000,
            )
        )
    return made


def outcome(request: Request, answer: Generation) -> Counter[str]:
    """What is true of an answer. Anything invalid raises."""
    jsonschema.validate(json.loads(answer.text), request.schema)
    assert not answer.truncated
    assert answer.tokens.output <= request.max_output_tokens
    output = known_stages()[request.job.stage].parse(answer.text, request.job)
    try:
        require_words(output)
    except OutputInvalid:
        return Counter(valid=1, closed=answer.closed, wordless=1)
    return Counter(valid=1, closed=answer.closed)


def outcomes(engine: MlxEngine, asked: list[Request]) -> Counter[str]:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda request: engine.generate(request, quiet), asked))
    assert len({answer.text for answer in answers}) == len(asked)
    return sum(map(outcome, asked, answers), Counter())


def test_every_answer_of_random_weights_follows_its_stage_schema(engine: MlxEngine, tiny: Path) -> None:
    asked = requests([tiny], 8, {"analysis": 420, "feedback": 260})
    counted = outcomes(engine, asked)
    assert counted["valid"] == 8
    assert counted["closed"] >= 4  # the limits are near the shortest answers


@pytest.mark.soak
def test_two_hundred_answers_at_the_real_limits(engine: MlxEngine, tmp_path: Path) -> None:
    models = [make_model(tmp_path / kind, kind) for kind in KINDS]
    counted = outcomes(engine, requests(models, 200, LIMITS))
    assert counted["valid"] == 200
    print(dict(counted))


def test_masks_are_made_while_the_model_computes(
    mlx: MlxEngine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constraint that looks its token up would wait for the step that another one has started.

    Nor may one wait for its token before that step is put together.
    """
    read: list[int] = []
    expected: list[Following] = []
    takes, expects = Constraint._last, Constraint.expect

    def hear(self: Constraint, tokens: Any) -> int:
        assert self._following is not None
        read.append(takes(self, tokens))
        return read[-1]

    def note(self: Constraint, following: Following, place: int) -> None:
        assert "tokens" not in vars(following)  # not waited for yet
        expected.append(following)
        expects(self, following, place)

    monkeypatch.setattr(Constraint, "_last", hear)
    monkeypatch.setattr(Constraint, "expect", note)
    answer = mlx.generate(ask(str(tiny)), quiet)
    loaded = load_model(str(tiny), None)
    assert len(expected) >= answer.tokens.output
    assert loaded.decode(read[: answer.tokens.output]) == answer.text
