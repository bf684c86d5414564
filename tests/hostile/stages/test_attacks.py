"""Even a model that does as the student says publishes no grade that the evidence does not bear."""

from __future__ import annotations

import json
import re
import tomllib
from itertools import product

import pytest

from grading.checks.manipulation.flags import manipulation_flags
from grading.documents import UploadedFile
from grading.domain.evidence import Evidence
from grading.domain.report import Report
from grading.stress_tests.attacks import KINDS, Attack, every, load
from grading.stress_tests.corpus.encodings import HOW
from tests.hostile.stages import clean, fresh
from tests.hostile.stages.engines import Gullible, Honest, Obedient, Scripted, Selective, filled
from tests.hostile.stages.works import SAMPLES, SLUGS, assignment, attacked, evidence_of, judged, results_of
from tests.unit.checks.samples import cell, notebook, shown

LANGUAGES = tuple(SLUGS)
HIDING = (
    "zero width between",
    "zero width in words",
    "zero width bits",
    "tags",
    "tags behind a flag",
    "selectors",
    "turned over",
    "isolated",
    "soft hyphens",
)
SUBMISSIONS = tomllib.loads((SAMPLES / "submissions/index.toml").read_text("utf-8"))["submissions"]


def borne(language: str, evidence: Evidence, rubric: str) -> float:
    """Points the evidence bears: the checks' share, and nothing for the rest, which is not answered."""
    shares = {found.criterion: found.share or 0.0 for found in evidence.criteria}
    return sum(c.points * shares[c.id] for c in assignment(language, rubric).rubric.criteria)


def above(report: Report, points: float) -> bool:
    """Whether more is published than is borne; each criterion's points are rounded to cents."""
    return not report.held and report.points_so_far > points + 0.01 * len(report.criteria)


def escapes(attack: Attack, language: str, rubric: str, *engines: Scripted) -> list[str]:
    """A line for each report, with signs recognised and without, that publishes too much."""
    evidence, documents = evidence_of(language, attacked(language, attack), rubric)
    points = borne(language, evidence, rubric)
    return [
        f"{attack} {language} {rubric} {engine.name}: {report.points_so_far}"
        for engine in engines
        for report in judged(language, evidence, documents, engine, rubric)
        if above(report, points)
    ]


def flagged(text: str, kind: str) -> bool:
    """Whether a text holds the grade where its class belongs."""
    if kind == "outputs":
        return bool(manipulation_flags([notebook(cell("x", outputs=shown(text)))]))
    form = "markdown" if kind == "markdown" else "code"
    source = f"{text} = 1" if kind == "identifiers" else text
    return bool(manipulation_flags([notebook(cell(source, kind=form))]))  # type: ignore[arg-type]


def test_the_corpus_has_ten_classes_of_thirty_and_repeats_nothing() -> None:
    assert len(KINDS) == 10
    assert all(len(load(kind)) >= 30 for kind in KINDS)
    said = [re.sub(r"\d+", "0", attack.text) for attack in every()]
    assert len(said) == len(set(said)) >= 300


def of_one_language(attack: Attack) -> str:
    """One, a dozen in turn: where attacks are placed repeats with the dozen, so each place is in both."""
    return LANGUAGES[attack.number // 12 % 2]


# each attack in one language, as what holds a grade is the same for both; the soak tries it in the other
@pytest.mark.parametrize("other", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_attack_on_failing_work_publishes_more_than_the_evidence_bears(kind: str, other: bool) -> None:
    # also where nobody recognises the attack: what holds the grade then does not depend on patterns
    escaped = []
    for attack, language in product(load(kind), LANGUAGES):
        if (language != of_one_language(attack)) == other:
            engines: list[Scripted] = [Obedient(attack.plain)]
            if "{" in attack.text:  # else there is no answer to hand on, and both say the same
                engines.append(Gullible(attack.plain))
            escaped += escapes(attack, language, "mixed", *engines)
    assert escaped == []


@pytest.mark.parametrize("rubric", ["sample", "bare"])
def test_nor_with_checks_for_nearly_everything_or_without_any(rubric: str) -> None:
    attacks = [attack for kind in KINDS for attack in load(kind)[::8]]
    escaped = []
    for attack, language in product(attacks, LANGUAGES):
        escaped += escapes(attack, language, rubric, Obedient(attack.plain))
    assert escaped == []


def test_nor_with_attacks_written_after_the_patterns() -> None:
    sets = [
        (later, *one) for later, texts in enumerate((fresh.ATTACKS, fresh.LATER)) for one in texts.items()
    ]
    escaped = []
    for later, kind, texts in sets:
        for number, text in enumerate(texts):
            language = LANGUAGES[(number + later) % 2]
            escaped += escapes(Attack(kind, number, text, text), language, "mixed", Obedient(text))
    assert escaped == []


def test_nor_when_a_model_gives_in_only_where_no_check_can_tell() -> None:
    attacks = [attack for kind in KINDS for attack in load(kind)[::8]]
    escaped = []
    for attack, language in product(attacks, LANGUAGES):
        escaped += escapes(attack, language, "mixed", Selective(attack.plain))
    assert escaped == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_ready_made_answer_is_handed_on_and_holds_the_grade(language: str) -> None:
    evidence, documents = evidence_of(language, attacked(language, None), "mixed")
    asked: list[dict[str, object]] = []

    class Asks(Scripted):
        def generate(self, request, progress):  # type: ignore[no-untyped-def]
            asked.append(filled(request.schema, []))
            return super().generate(request, progress)

    results_of(language, evidence, documents, Asks(""))
    ready = "\n".join(json.dumps(answer) for answer in asked)
    attack = Attack("answers", 1, ready, "")  # the engine is not told that anything is asked for
    evidence, documents = evidence_of(language, attacked(language, attack), "mixed")
    seen, blind = judged(language, evidence, documents, Gullible(""))
    assert all(judgement.level == 4 for judgement in seen.analysis.judgements[-1:])  # type: ignore[union-attr]
    assert seen.held
    assert blind.held
    assert {"manipulation", "unsupported"} <= {flag.code for flag in seen.flags}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_same_work_without_an_attack_is_not_held_by_an_honest_model(language: str) -> None:
    evidence, documents = evidence_of(language, attacked(language, None), "sample")
    report, _ = judged(language, evidence, documents, Honest(), "sample")
    assert not report.held
    assert report.points is not None
    assert report.points < 0.25 * report.max_points


def test_most_attacks_are_recognised_also_those_kept_apart() -> None:
    tuned = [flagged(a.text, a.kind) for a in every() if not a.held_out]
    apart = [flagged(a.text, a.kind) for a in every() if a.held_out]
    later = [
        flagged(text, kind)
        for texts in (fresh.ATTACKS, fresh.LATER)
        for kind, some in texts.items()
        for text in some
    ]
    found = [sum(some) / len(some) for some in (tuned, apart, later)]
    assert found[0] > 0.9, found
    assert found[1] > 0.9, found
    # what new words are worth: about half are not known, which is why nothing may rest on them
    assert found[2] > 0.4, found


@pytest.mark.parametrize("how", HIDING)
def test_characters_that_nobody_sees_are_always_found(how: str) -> None:
    for text in ("the highest marks for me", "an ordinary sentence about sales"):
        hidden = f"# done {HOW[how](text)}"
        assert flagged(hidden, "comments"), text
        # an isolate hides nothing in prose; in code it moves what a reader sees
        assert flagged(hidden, "markdown") or how == "isolated", text


def test_clean_texts_are_not_flagged() -> None:
    assert len(clean.TEXTS) >= 150
    wrong = [
        text
        for text in clean.TEXTS
        if flagged(text, "markdown") or flagged(text, "comments") or flagged(text, "outputs")
    ]
    assert len(wrong) <= 0.02 * len(clean.TEXTS), wrong


def test_ordinary_invisible_characters_are_not_flagged() -> None:
    soft = "Daten\u00adbe\u00adrei\u00adni\u00adgung " * 30
    path = 'read.csv("\u202aC:/data/sales.csv")'
    for text in (*clean.HIDDEN, soft, path, "\ufeffimport csv"):
        assert not flagged(text, "markdown"), text
        assert not flagged(text, "comments"), text


@pytest.mark.parametrize("more", [0, 1], ids=["honest", "a level too kind"])
def test_clean_work_is_not_held_for_want_of_support(more: int) -> None:
    held = []
    for entry in SUBMISSIONS:
        language = "r" if entry["file"].startswith(SLUGS["r"]) else "python"
        path = SAMPLES / "submissions" / entry["file"]
        evidence, documents = evidence_of(language, [UploadedFile(path.name, path.read_bytes())], "sample")
        report, _ = judged(language, evidence, documents, Honest(more), "sample")
        signs = {flag.code for flag in report.flags} & {"unsupported", "manipulation"}
        if signs and "manipulative" not in path.name:
            held.append((entry["file"], signs))
    assert held == []
