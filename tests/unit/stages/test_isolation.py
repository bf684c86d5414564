"""A prompt never carries another assignment's words: two courses through one process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from grading.domain.document import Cell, Document, Location, Output
from grading.domain.evidence import CheckOutcome, CriterionEvidence, Evidence, Flag, TestOutcome
from grading.domain.jobs import Job, Material, SentPrompt
from grading.domain.rubric import Criterion, Rubric
from tests.unit.stages.test_run import Scripted
from workers.machine.engines.rules.engine import RulesEngine
from workers.machine.stages import known_stages, run_stage

WORDS = {"a": "quokka", "b": "wombat"}
MOST_OUTPUT = 600


def mark(course: str) -> Iterator[str]:
    """`quokka1`, `quokka2` … : another word for each field."""
    return (f"{WORDS[course]}{number}" for number in range(1, 10_000))


def rubric(word: Iterator[str], course: str) -> Rubric:
    criteria = tuple(
        Criterion(
            id=f"{WORDS[course]}-{stage}",
            title=next(word),
            description=next(word),
            stage=stage,
            points=3,
            levels=(next(word), next(word), next(word)),
            where=next(word),
        )
        for stage in known_stages()
    )
    return Rubric(criteria=criteria, equivalents={next(word): (next(word),)})


def evidence(word: Iterator[str], criteria: tuple[Criterion, ...], place: Location) -> Evidence:
    def outcome() -> CheckOutcome:
        test = TestOutcome(
            name=next(word),
            passed=False,
            input=next(word),
            expected=next(word),
            got=next(word),
            message=next(word),
            show="everything",
        )
        return CheckOutcome(
            check=next(word), label=next(word), earned=0.5, message=next(word), location=place, tests=(test,)
        )

    return Evidence(
        criteria=tuple(
            CriterionEvidence(criterion=c.id, share=0.5, outcomes=(outcome(), outcome())) for c in criteria
        ),
        flags=(Flag(code="x", message=next(word), location=place),),
        added_lines=2,
    )


def made(course: str, stage: str, number: int) -> Job:
    word = mark(course)
    graded = rubric(word, course)
    document = Document(
        path=f"{next(word)}.ipynb",
        kind="notebook",
        language="r",
        notes=(next(word),),
        cells=(
            Cell(
                number=1,
                kind="code",
                source=f"{next(word)} <- {next(word)}({number})",
                added=(1,),
                place=f"{next(word)} {graded.criteria[0].where}",
                outputs=(Output(kind="stream", text=next(word)),),
                played=(Output(kind="result", text=next(word)),),
            ),
            Cell(number=2, kind="markdown", source=f"I found {next(word)}.", added=(1,), place=next(word)),
        ),
    )
    return Job(
        run_id=f"{WORDS[course]}-run-{number}",
        round_id=f"{WORDS[course]}-round",
        stage=stage,
        material=Material(
            title=next(word),
            task=next(word),
            instructions=next(word),
            starter=f"{next(word)}\n" * 400,
            solution=f"{next(word)}\n" * 400,
            language=next(word),
        ),
        rubric=graded,
        documents=(document,),
        evidence=evidence(word, graded.criteria, Location(document=document.path, cell=1, line=1)),
        nonce=f"{number:08x}{WORDS[course].encode().hex()}",
        budget_s=60,
        max_output_tokens=MOST_OUTPUT,
    )


def sent(given: Job, engine: Scripted | RulesEngine, context: int) -> tuple[SentPrompt, str]:
    result = run_stage(given, engine, "m", "x", lambda *_: None, context_tokens=context)
    assert result.prompt is not None
    return result.prompt, result.model_copy(update={"prompt": None}).model_dump_json()


def test_no_prompt_and_no_result_holds_a_word_of_another_assignment() -> None:
    rules = RulesEngine()
    seen: dict[tuple[str, str, int], SentPrompt] = {}
    # the same job again after each of the other course, cut and uncut, with and without a model
    for number, (context, course, stage) in enumerate(
        product((8_000, 30_000), ("a", "b") * 3, known_stages())
    ):
        given = made(course, stage, number % 4)
        other = WORDS["b" if course == "a" else "a"]
        scripted = Scripted("no JSON", f'{{"judgements": {{}}, "note": "{number}"}}')
        for engine in (rules, scripted):
            prompt, answer = sent(given, engine, context)
            assert other not in prompt.system + prompt.user + answer
            assert WORDS[course] in prompt.system
            assert WORDS[course] in prompt.user
            assert seen.setdefault((given.run_id, stage, context), prompt) == prompt
        assert not any(other in r.system + r.user + r.repair + r.previous for r in scripted.requests)
        assert not any(other in str(r.schema) for r in scripted.requests)


def test_every_field_that_belongs_in_a_prompt_is_there() -> None:
    """Else the test above could not fail."""
    for stage in known_stages():
        prompt = known_stages()[stage].render(made("a", stage, 1))
        whole = f"{prompt.system}\n{prompt.user}"
        material = made("a", stage, 1).material
        for words in (material.title, material.task, material.instructions, material.language):
            assert words in prompt.system
        assert material.solution.strip() in prompt.system
        assert whole.count(WORDS["a"]) > 800
