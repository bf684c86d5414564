"""The deductions, caps and minimum demands of a legacy rubric as adjustments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil

from grading.assignments.legacy_import.checks import PIPES, check_of, merged
from grading.assignments.legacy_import.criteria import Draft, is_technical, slug
from grading.assignments.legacy_import.json_reader import percent
from grading.assignments.legacy_import.output_checks import results_for
from grading.assignments.legacy_import.source import Bonus, Section, Validation, humanised
from grading.checks.kinds.code import Defines, Uses
from grading.checks.kinds.counts import Count
from grading.checks.kinds.prose import Words
from grading.domain.check import Check
from grading.domain.rubric import Adjustment, Criterion

LITTLE = 0.25
"""Share of the results below which it says little that work runs."""
ANSWERED = 5
"""Words from which on a question counts as answered."""
COUNTED = ("minimum_usage", "minimum_uses", "minimum_calls", "minimum_groupings")
USED_RULES = ("word_count_penalty", "no_answer", "excellent", "good", "adequate", "poor", "fail")
"""Scoring rules that adjustments and levels say."""
UNSEEN = (
    "no check can see this; where it makes results wrong, the checks on results take points. Write an "
    "adjustment if it should cost more"
)
WITHOUT_CHECK = {"template_only": "only added work earns, so an unchanged template earns nothing"}
BY_RUNNING = {
    "no_outputs": "the work is run here, and all_executed of the section counts cells not run before",
    "unexecuted_cells": "the share of executed cells counts instead, by all_executed of the section",
    "syntax_errors": "the share of cells without an error counts instead, by no_errors of the section",
}
"""Deductions that checks of the technical section take the place of."""


def add_adjustments(draft: Draft) -> tuple[Adjustment, ...]:
    """All adjustments of the file; what cannot be one is named in the draft's notes."""
    found = [*_words(draft)]
    for section in draft.legacy.sections:
        found += _deductions(draft, section)
        found += _unproven(draft, section)
    found += [*_validations(draft), *_detection(draft)]
    seen: dict[str, Adjustment] = {}
    for one in found:
        name, number = one.id, 1
        while name in seen:
            number += 1
            name = f"{one.id}-{number}"
        seen[name] = one.model_copy(update={"id": name})
    return tuple(seen.values())


def bonus_of(draft: Draft, offers: tuple[Bonus, ...]) -> Iterator[Criterion]:
    """Bonus criteria, which the model judges; those without points are named."""
    for offer in offers:
        if offer.points <= 0:
            draft.notes.append(f"bonus_opportunities.{offer.key} names no points and is left out.")
            continue
        yield Criterion(
            id=draft.name(offer.key),
            title=humanised(offer.key),
            description=offer.description,
            points=offer.points,
            bonus=True,
        )


def _words(draft: Draft) -> Iterator[Adjustment]:
    """Questions that need a number of words: a deduction where the file names it, else in proportion."""
    for section in draft.legacy.sections:
        share = percent(section.rules.get("word_count_penalty", "")) or draft.legacy.shallow
        for name in draft.of_section.get(section.key, ()):
            if name not in draft.asked_words:
                continue
            where, least = draft.asked_words[name]
            yield Adjustment(
                id=slug(f"words-{name}"),
                title=f"Fewer than {least} words",
                criteria=(name,),
                deduct=share or 1.0,
                partly=share is None,
                unless=(Words(at_least=least, where=where),),
            )
            if share is not None:
                answered = Words(at_least=ANSWERED, where=where)
                yield Adjustment(
                    id=slug(f"answer-{name}"),
                    title="No answer",
                    criteria=(name,),
                    cap=0.0,
                    unless=(answered,),
                )


def _deductions(draft: Draft, section: Section) -> Iterator[Adjustment]:
    criteria = draft.of_section.get(section.key, ())
    for key, text in section.deductions.items():
        share, made = percent(text), None
        if key in BY_RUNNING and is_technical(section):
            draft.notes.append(f"{section.key}.deductions.{key} (“{text}”): {BY_RUNNING[key]}.")
            continue
        if key == "template_only":
            made = _hardly_right(draft, criteria, text)
        elif key == "no_pipes" and share:
            made = _unless(key, "No pipe is used", share, criteria, (Uses(any_of=PIPES),))
        elif key == "missing_variables" and share and draft.legacy.variables:
            named = tuple(Defines(all_of=(name,)) for name in draft.legacy.variables)
            proven = tuple(draft.proven(named, None, "autograder_sandbox.required_variables"))
            made = _unless(key, "Required variables are missing", share, criteria, proven, each=True)
        if made is None:
            draft.notes.append(
                f"{section.key}.deductions.{key} (“{text}”): {WITHOUT_CHECK.get(key, UNSEEN)}."
            )
        else:
            yield made
    others = [key for key in section.rules if key not in USED_RULES]
    if others:
        draft.notes.append(
            f"{section.key}.scoring_rules ({', '.join(others)}): the points of a criterion are the weighted "
            "share of its checks; nothing else was made of them."
        )


def _unless(
    key: str,
    title: str,
    share: float,
    criteria: tuple[str, ...],
    unless: tuple[Check, ...],
    *,
    each: bool = False,
) -> Adjustment | None:
    if not unless or not criteria:
        return None
    return Adjustment(id=slug(key), title=title, deduct=share, criteria=criteria, unless=unless, each=each)


def _unproven(draft: Draft, section: Section) -> Iterator[Adjustment]:
    """The same as for `template_only` where the file does not say so: that nonsense runs is no work."""
    criteria = draft.of_section.get(section.key, ())
    if not is_technical(section) or "template_only" in section.deductions:
        return
    made = _hardly_right(draft, criteria, "")
    if made is not None:
        draft.notes.append(f"{section.key}: added that it earns nothing where hardly any result is right.")
        yield made


def _hardly_right(draft: Draft, criteria: tuple[str, ...], text: str) -> Adjustment | None:
    """Where next to no result is right, a section about running earns nothing."""
    results = _all_results(draft)
    if not results:
        return None
    return Adjustment(
        id="template_only",
        title="Hardly any result is right",
        description=text,
        criteria=criteria,
        deduct=1.0,
        partly=True,
        at_least=LITTLE,
        unless=results,
    )


def _all_results(draft: Draft) -> tuple[Check, ...]:
    """The checks on results, by the points of their criteria; those on the whole work where none has any."""
    points = {one.id: one.points for one in draft.criteria}
    found = tuple(
        check.model_copy(update={"weight": points[name] / len(checks)})
        for name, checks in draft.results.items()
        for check in checks
    )
    return found or tuple(results_for(None, draft.works, draft.named, 1.0))


def _validations(draft: Draft) -> Iterator[Adjustment]:
    for rule in draft.legacy.validations:
        made = _validation(draft, rule)
        if made is not None:
            yield made
        elif rule.key not in ("output_verification", "output_requirement"):
            draft.notes.append(
                f"score_validation.{rule.key} (“{rule.description}. {rule.action}”): no check can see "
                "this, or the solution does not meet it; write an adjustment if it should count."
            )
        else:
            draft.notes.append(
                f"score_validation.{rule.key} (“{rule.action}”): the work is run here and its outputs are "
                "compared; nothing else was made of it."
            )


def _validation(draft: Draft, rule: Validation) -> Adjustment | None:
    share = percent(rule.action)
    makers: Mapping[str, Callable[[], tuple[tuple[Check, ...], float]]] = {
        "reflection_requirement": lambda: _answers(draft, rule),
        "minimum_completion": lambda: (_all_results(draft), rule.minimum or 0.0),
    }
    if share is None or not rule.minimum:
        return None
    if rule.key in makers:
        unless, at_least = makers[rule.key]()
    elif rule.key.endswith("_requirement") and rule.counts in COUNTED:
        unless, at_least = _counts(draft, rule), 1.0
    else:
        return None
    criteria = _meant(draft, rule.action)
    if not unless or criteria is None or not 0 < at_least <= 1:
        return None
    caps = "cap" in rule.action.lower() and share < 1
    return Adjustment(
        id=slug(rule.key),
        title=humanised(rule.key),
        description=rule.description,
        criteria=criteria,
        unless=unless,
        at_least=at_least,
        cap=share if caps else None,
        deduct=None if caps else share,
    )


def _answers(draft: Draft, rule: Validation) -> tuple[tuple[Check, ...], float]:
    """Answers of enough words, and the share of the questions that must have one."""
    found = tuple(Words(at_least=least, where=where) for where, least in draft.asked_words.values())
    return found, (rule.minimum or 0.0) / len(found) if found else 0.0


def _counts(draft: Draft, rule: Validation) -> tuple[Check, ...]:
    """So many uses of the function that the rule is called after."""
    name = rule.key.removesuffix("_requirement")
    names = PIPES if name.startswith("pipe") else (name,)
    if names != PIPES and draft.works.solution and name not in draft.works.calls:
        return ()
    count = Count(names=names, at_least=max(1, int(rule.minimum or 1)))
    return tuple(draft.proven((count,), None, f"score_validation.{rule.key}"))


def _meant(draft: Draft, action: str) -> tuple[str, ...] | None:
    """The criteria that a sentence speaks of: a section's, or the whole as an empty tuple."""
    for key, names in draft.of_section.items():
        if key in action:
            return names
    return ()


def _detection(draft: Draft) -> Iterator[Adjustment]:
    """Work that has too few of the indicators, in too few lines of its own, is the template."""
    found = draft.legacy.detection
    limit = draft.legacy.strict.get("template_only_max_percent")
    cap = found.cap if found.cap is not None else limit / 100 if isinstance(limit, float) else None
    indicators = merged([check_of(string, draft.names) for string in found.indicators])
    single = [one for check in indicators for one in _apart(check)]
    unless = tuple(draft.proven(single, None, "template_detection.key_indicators"))
    if cap is None or not 0 <= cap < 1:
        return
    if not unless:
        results = _all_results(draft)
        if results:
            yield Adjustment(
                id="template_detection",
                title="Hardly more than the template",
                cap=cap,
                unless=results,
                at_least=LITTLE / 2,
            )
        return
    lines = (
        sum(1 for line in draft.works.given_text.split("\n") if line.strip()) if draft.works.starter else 0
    )
    own = min(draft.works.own_lines // 2, ceil(lines * max(0.0, found.longer - 1)))
    least = min(1.0, (found.minimum or len(found.indicators)) / max(1, len(found.indicators)))
    yield Adjustment(
        id="template_detection",
        title="Hardly more than the template",
        cap=cap,
        unless=tuple(one.model_copy(update={"own_lines": own}) for one in unless),
        at_least=least,
    )


def _apart(check: Check) -> list[Check]:
    """Each function of a check by itself, so that a share of them can be asked for."""
    if isinstance(check, Uses) and len(check.all_of) > 1:
        return [Uses(all_of=(name,)) for name in check.all_of]
    return [check]
