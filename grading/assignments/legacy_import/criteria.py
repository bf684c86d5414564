"""The criteria of a legacy rubric: one for each task, question and technical section."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from grading.assignments.legacy_import.checks import (
    PIPES,
    Names,
    check_of,
    ladder_for,
    merged,
    same_names,
    shown_output,
)
from grading.assignments.legacy_import.output_checks import SHARE, VALUES, results_for
from grading.assignments.legacy_import.solution_and_starter import Works
from grading.assignments.legacy_import.source import Legacy, Part, Section, Task, part_number
from grading.checks.context import Context
from grading.checks.evaluate import evaluate
from grading.checks.kinds.code import CodeMatches, Defines, Uses
from grading.checks.kinds.combined import Alternatives
from grading.checks.kinds.outputs import AllExecuted, NoErrors
from grading.checks.kinds.tests import VariableEquals
from grading.checks.message_parts import listed
from grading.domain.check import Check, all_checks
from grading.domain.rubric import DEFAULT_LEVELS, Criterion, Rubric

THINKING = re.compile(
    r"reflecti|thinking|understanding|communication|interpretation|insight|justification|documentation"
    r"|presentation|discussion|writing",
    re.IGNORECASE,
)
"""In the key of a section: a model judges it, as no check can."""
TECHNICAL = re.compile(
    r"technical|execut|syntax|code_quality|running|\bruns?\b|\bpipes?\b|no errors|without errors",
    re.IGNORECASE,
)
"""In the key or the sentences of a section: it is about running, not about results."""
FEWEST_LINES = 5
"""Lines of one's own, at least, before it says anything that they run without an error."""
_BRACKETED = re.compile(r"\(([^()]*(?:\(\)[^()]*)*)\)")
_CALLED = re.compile(r"\b([A-Za-z_.][\w.]*)\(\)")
_WORD = re.compile(r"[A-Za-z_.][\w.]*")


@dataclass
class Draft:
    """The criteria as they are made, and what the other parts of the translation need to know of them."""

    legacy: Legacy
    works: Works
    notes: list[str]
    criteria: list[Criterion] = field(default_factory=list)
    of_section: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The ids of a section's criteria."""
    results: dict[str, tuple[Check, ...]] = field(default_factory=dict)
    """The checks on results of a criterion, each with its place."""
    taken: set[str] = field(default_factory=set)
    """Ids of criteria."""
    unanswered: list[str] = field(default_factory=list)
    """Tasks that the solution has no code for."""
    unfound: list[str] = field(default_factory=list)
    """Questions that ask for words and whose place was not found."""
    asked_words: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Where a question is answered and with how many words at least, by criterion."""

    def __post_init__(self) -> None:
        named = {*self.legacy.variables, *(n for a in self.legacy.auto for n in (*a.columns, *a.variables))}
        called = {f for a in self.legacy.auto for f in a.functions} | set(self.legacy.functions)
        self.named = frozenset(named)
        self.tasks = frozenset(f"{task.key}.verification" for task in self.legacy.tasks)
        self.names = Names(
            self.works.calls | called, frozenset(named) | self.works.defined - self.works.calls
        )

    def name(self, key: str) -> str:
        """An id for the criterion of a key, which no other one has."""
        plain = slug(key)
        name, number = plain, 1
        while name in self.taken:
            number += 1
            name = f"{plain}-{number}"
        self.taken.add(name)
        return name

    def add(self, section: Section, made: Iterable[Criterion]) -> None:
        """Keep the criteria of a section."""
        found = tuple(made)
        self.criteria += found
        self.of_section[section.key] = tuple(one.id for one in found)

    def proven(self, checks: Sequence[Check], where: str | None, at: str) -> list[Check]:
        """The checks that the solution itself meets; the others are left out and named."""
        if not self.works.solution or not checks:
            return list(checks)
        context = self.of_solution(checks, where)
        kept: list[Check] = []
        lost: list[Check] = []
        for check in checks:
            earned = evaluate(check, context).earned
            (kept if earned is None or earned == 1 else lost).append(check)
        if lost and (kept or at not in self.tasks):
            self.notes.append(
                f"{at}: not asked for, as the solution does not have {listed(map(said, lost), 50)}."
            )
        return kept

    def place(self, task: Task) -> str | None:
        """Where a task is answered: below a heading of its number, or where a variable that it names is."""
        where = where_of(task)
        if not self.works.solution or self.works.own(where):
            return where
        others = [anything(task.number)] if task.number else []
        checks = (check_of(string, self.names) for string in task.verification)
        names = [name for check in checks if isinstance(check, Defines) for name in check.all_of]
        others += [rf"\b{re.escape(name)}\b" for name in names]
        return next((other for other in others if self.works.own(other)), where)

    def of_solution(self, checks: Sequence[Check], where: str | None) -> Context:
        """What these checks look at when the solution is graded."""
        any_one = Criterion(id="all", title="All", points=1)
        rubric = Rubric(criteria=(any_one,), equivalents=self.equivalents(checks))
        return Context(self.works.solved, rubric, self.works.solved, where, is_solution=True)

    def equivalents(self, checks: Iterable[Check]) -> dict[str, tuple[str, ...]]:
        """The file's column mappings, and spellings of the functions these checks name."""
        found = {
            name: tuple(o for o in others if o != name)
            for name, others in self.legacy.mappings.items()
            if any(o != name for o in others)
        }
        for name in sorted(set(_function_names(checks))):
            others = same_names(name)
            if others:
                found[name] = tuple(dict.fromkeys((*found.get(name, ()), *others)))
        return found


def add_section(draft: Draft, section: Section) -> None:
    """Add the criteria of one section; their points, scaled, sum to the section's maximum."""
    if section.parts or section.questions:
        draft.add(section, _divided(draft, section))
    elif is_technical(section):
        draft.add(section, [_technical(draft, section)])
    else:
        draft.add(section, [_undivided(draft, section)])


def is_technical(section: Section) -> bool:
    """Whether a section asks for work that runs, rather than for results or thoughts."""
    if section.parts or section.questions or section.manual or THINKING.search(section.key):
        return False
    return TECHNICAL.search("\n".join((section.key, *section.demands, *section.deductions))) is not None


def _divided(draft: Draft, section: Section) -> Iterable[Criterion]:
    leaves: list[tuple[Task, Part | None, float]] = []
    for part in section.parts:
        inner = sum(t.points for t in part.tasks) or len(part.tasks)
        leaves += [(t, part, part.points * (t.points or 1.0) / inner) for t in part.tasks]
    leaves += [(q, None, q.points) for q in section.questions]
    points = scaled([raw for _, _, raw in leaves], section.max_points)
    for (task, within, _), worth in zip(leaves, points, strict=True):
        if worth <= 0:
            draft.notes.append(f"{task.key} has no points and is left out.")
        elif within is None:
            yield _question(draft, section, task, worth)
        else:
            yield _task(draft, within, task, worth)


def _task(draft: Draft, part: Part, task: Task, points: float) -> Criterion:
    where, works = draft.place(task), draft.works
    plain = Criterion(
        id=draft.name(task.key), title=task.title, points=points, where=where, description=_told(task)
    )
    if works.solution and not works.own(where):
        draft.unanswered.append(task.key)
        return plain
    strings = [check_of(string, draft.names) for string in task.verification]
    strings += [Uses(any_of=task.functions)] if task.functions else []
    # where the solution has none of it, one of the two is wrong: the import then refuses
    checks = merged(draft.proven(strings, where, f"{task.key}.verification") or strings)
    ladder = _ladder(draft, part, task)
    weight = sum(c.weight for c in checks) or 1.0
    results = results_for(where, works, draft.named, weight + (weight if ladder is not None else 0.0))
    if ladder is not None:
        results = _with_ladder(draft, part, ladder, weight, results, where)
    elif draft.legacy.strict.get("no_output_no_points") is True and checks and not results:
        checks.append(shown_output(checks))
    draft.results[plain.id] = tuple(c.model_copy(update={"where": where}) for c in results)
    return plain.model_copy(update={"checks": (*checks, *results)})


def _ladder(draft: Draft, part: Part, task: Task) -> Check | None:
    """The rules for partial credit of a part, for the one of its tasks that they speak of."""
    rules = [r for r in draft.legacy.rules if part.number and part_number(r.part) == part.number]
    words = [w for r in rules for w in (r.key, *r.patterns, *r.formats)]
    if not rules or _meant(part.tasks, words) != task.key:
        return None
    functions = {f for t in part.tasks for f in t.functions}
    functions |= {f for a in draft.legacy.auto if a.number == part.number for f in a.functions}
    return ladder_for(rules, sorted(functions), draft.notes)


def _with_ladder(
    draft: Draft, part: Part, ladder: Check, weight: float, results: list[Check], where: str | None
) -> list[Check]:
    """A multiplier in the old file: weighs as much as all else together, or stands beside the results."""
    ladder = ladder.model_copy(update={"weight": weight})
    if not draft.works.solution or not results:
        return [ladder, *results]
    earned = evaluate(ladder, draft.of_solution([ladder], where)).earned
    if earned is None or earned == 1:
        return [ladder, *results]
    draft.notes.append(
        f"The rules for partial credit of {part.key} give the solution itself {earned:.0%}: work that does "
        "better has other outputs than the solution, there and wherever it goes on with them. Improve the "
        "solution and import again."
    )
    return [
        Alternatives(checks=(one, ladder), weight=one.weight, label=f"{one.label}, or better by the rules")
        for one in results
    ]


def _question(draft: Draft, section: Section, task: Task, points: float) -> Criterion:
    """Judged by the model; how many words it needs is an adjustment, as words alone earn nothing."""
    thinking = task.kind == "question" or section.manual or THINKING.search(section.key) is not None
    where = _where_of_question(draft, section, task) if thinking else where_of(task)
    name = draft.name(task.key)
    words = task.min_words or _words_of_auto(draft.legacy, task)
    if words and where is not None:
        draft.asked_words[name] = (where, words)
    elif words:
        draft.unfound.append(f"{task.key} ({words} words)")
    return Criterion(
        id=name,
        title=task.title,
        stage="feedback" if thinking else "analysis",
        points=points,
        levels=_levels(task.levels, section),
        where=where,
        description=_told(task),
    )


def _where_of_question(draft: Draft, section: Section, task: Task) -> str | None:
    where = where_of(task)
    works = draft.works
    if where is None or not (works.solution or works.starter) or works.has(where):
        return where
    if "." in task.number:
        return None
    return works.question(int(task.number), len(section.questions))


def _words_of_auto(legacy: Legacy, task: Task) -> int | None:
    own = [a.min_words for a in legacy.auto if a.min_words and a.number == task.number.split(".")[0]]
    own = own or [a.min_words for a in legacy.auto if a.min_words]
    return own[0] if own else None


def _undivided(draft: Draft, section: Section) -> Criterion:
    """A section without parts: judged by the model, beside what its sentences name."""
    thinking = section.manual or THINKING.search(section.key) is not None
    checks = [] if thinking else _named_results(draft, section)
    if not checks:
        draft.notes.append(f"{section.key}: no check can decide it; the model of its stage judges it.")
    return Criterion(
        id=draft.name(section.key),
        title=section.title,
        description="\n".join((*section.demands, *section.checked)),
        stage="feedback" if thinking else "analysis",
        points=section.max_points,
        levels=_levels(section.levels, section),
        checks=tuple(checks),
    )


def _named_results(draft: Draft, section: Section) -> list[Check]:
    """The functions and variables that sentences about checks name and the solution has."""
    text, works = " ".join(section.checked), draft.works
    names = tuple(dict.fromkeys(w for w in _WORD.findall(text) if "_" in w and w in works.defined))
    if not works.solution:
        return []
    strings: list[Check] = [Uses(all_of=(name,)) for name in dict.fromkeys(_CALLED.findall(text))]
    strings += [Defines(all_of=(name,)) for name in names]
    checks = merged(draft.proven(strings, None, f"{section.key}.automated_checks"))
    if names and not works.lacking and not works.changing:
        weight = SHARE * max(1.0, sum(c.weight for c in checks))
        checks.append(VariableEquals(names=names, label=VALUES, weight=weight))
    return checks


def _technical(draft: Draft, section: Section) -> Criterion:
    """A section about running: runs without errors, uses what it names, makes the variables."""
    own = own_lines(draft)
    checks: list[Check] = [AllExecuted(weight=2, own_lines=own), NoErrors(weight=2, own_lines=own)]
    strings: list[Check] = []
    if "no_pipes" not in section.deductions and any(
        "%>%" in d or "pipe" in d.lower() for d in section.demands
    ):
        strings.append(Uses(any_of=PIPES, label="uses pipes"))
    for demand in section.demands:
        strings += [Uses(all_of=(name,)) for name in _named_functions(demand)]
    strings += [_listed(name, draft) for name in draft.legacy.functions]
    for auto in draft.legacy.auto:
        if auto.number not in _numbers(draft.legacy) and auto.functions:
            uses = Uses(all_of=auto.functions, label=auto.name, where=heading("Part", auto.number))
            strings.append(uses)
    if "missing_variables" not in section.deductions:
        strings += [Defines(all_of=(name,)) for name in draft.legacy.variables]
    checks += merged(draft.proven(strings, None, section.key))
    return Criterion(
        id=draft.name(section.key),
        title=section.title,
        description="\n".join(section.demands),
        points=section.max_points,
        checks=tuple(checks),
    )


def _numbers(legacy: Legacy) -> set[str]:
    """The numbers of the parts that the rubric has."""
    numbers = {p.number for s in legacy.sections for p in s.parts}
    return numbers | {q.number.split(".")[0] for s in legacy.sections for q in s.questions}


def _listed(name: str, draft: Draft) -> Check:
    """Listed as a function, it is one unless the solution only gives it as an argument."""
    bare = name.strip().removesuffix("()").removesuffix("(")
    if draft.works.solution and bare not in draft.works.calls and not _CALLED.search(name):
        return CodeMatches(all_of=(rf"\b{re.escape(bare)}\s*=",), label=f"has {bare} =")
    return Uses(all_of=(bare,))


def own_lines(draft: Draft) -> int:
    """Lines of one's own without which it says nothing that a work runs: half of the solution's."""
    return max(FEWEST_LINES, draft.works.own_lines // 2)


def _named_functions(demand: str) -> tuple[str, ...]:
    """The functions listed in brackets: `(str_trim, str_detect, etc.)`, or written with brackets."""
    called = tuple(dict.fromkeys(_CALLED.findall(demand)))
    if called:
        return called
    for inner in _BRACKETED.findall(demand):
        names = [part.strip() for part in inner.split(",")]
        names = [n for n in names if _WORD.fullmatch(n) and n.rstrip(".").lower() != "etc"]
        if len(names) > 1:
            return tuple(names)
    return ()


def _told(task: Task) -> str:
    """What whoever judges a task should know of it."""
    return "\n".join((*task.hints, *(f"{way}: {text}" for way, text in task.grading.items())))


def _levels(levels: Sequence[str], section: Section) -> tuple[str, ...]:
    """With the level of no answer below; two of them where the lowest is said to earn 40 % or more."""
    if not levels:
        return DEFAULT_LEVELS
    if len(levels) == 4 and "4" in section.rules.get("poor", "")[:1]:
        return ("no answer", "hardly an answer, or off the topic", *levels)
    return ("no answer", *levels)


def where_of(task: Task) -> str | None:
    """Where a task stands: `Task 2.1` for `task_2_1_clean`; a part also holds its tasks."""
    return heading(task.kind.capitalize(), task.number) if task.number else None


def heading(kind: str, number: str) -> str | None:
    """The pattern of a heading such as `Task 2.1`; nothing without a number."""
    if not number:
        return None
    exact = number.replace(".", r"\.")
    if kind == "Part":
        return rf"\bPart\s*{exact}(?![\d.]*\d)|\b(?:Task|Question)\s*{exact}\.\d"
    return rf"\b{kind}\s*{exact}(?![\d.]*\d)"


def anything(number: str) -> str:
    """The pattern of a heading with this number, whatever it calls its tasks."""
    exact = number.replace(".", r"\.")
    return rf"\b(?:Task|Part|Section|Exercise|Question|Step|Problem)\s*{exact}(?![\d.]*\d)"


def _meant(tasks: Sequence[Task], words: Iterable[str]) -> str:
    """The task whose own words occur most in the rules of its part."""
    said = set(re.findall(r"[a-z]{3,}", " ".join(words).lower()))

    def shared(task: Task) -> int:
        own = " ".join((*task.verification, *task.functions, *task.grading)).lower()
        return len(said & set(re.findall(r"[a-z]{3,}", own)))

    return max(tasks, key=shared).key


def scaled(raw: Sequence[float], total: float) -> list[float]:
    """The numbers in proportion, to two decimals, with exactly `total` as their sum."""
    whole = sum(raw)
    if not raw or whole <= 0:
        raw, whole = [1.0] * len(raw), float(len(raw) or 1)
    found = [round(total * r / whole, 2) for r in raw]
    if found:
        largest = max(range(len(found)), key=found.__getitem__)
        found[largest] = round(found[largest] + total - sum(found), 2)
    return found


def slug(key: str) -> str:
    """A criterion's id from a key of the file."""
    plain = re.sub(r"[^a-z0-9_.-]+", "-", key.lower()).strip("-_.")
    return plain[:60] or "criterion"


def said(check: Check) -> str:
    """How an instructor knows a check of one search string."""
    names = (*getattr(check, "all_of", ()), *getattr(check, "any_of", ()))
    return check.label.removeprefix("has ") or str(listed(names))


def _function_names(checks: Iterable[Check]) -> Iterable[str]:
    for check in all_checks(checks):
        if isinstance(check, Uses):
            yield from (*check.all_of, *check.any_of)
