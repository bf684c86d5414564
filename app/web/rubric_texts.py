"""The words of the rubric editor: fields, kinds of checks, differences between versions, conflicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from app.web.i18n import current, render_message
from app.web.i18n import gettext as _
from grading.assignments.editor.diff import Difference
from grading.assignments.editor.form import Problem, Raw, Shape
from grading.assignments.editor.form_actions import part_at
from grading.assignments.editor.text_lists import number
from grading.checks.kind import CheckKind
from grading.domain.check import check_kinds
from grading.scoring.carry_over import Conflict


def field_words() -> dict[str, str]:
    """How fields of rubrics, criteria, deductions and all checks are called, by their name."""
    return {
        "id": _("Short name"),
        "title": _("Title"),
        "description": _("Description"),
        "stage": _("Stage"),
        "points": _("Points"),
        "levels": _("Levels, from lowest to highest"),
        "checks": _("Checks"),
        "where": _("Only in sections whose heading matches this pattern"),
        "label": _("Display name"),
        "files": _("Only in files that match"),
        "weight": _("Weight"),
        "cap": _("Cap (0 to 1)"),
        "part": _("Only in this question of a cell (pattern of its comment line)"),
        "own_lines": _("Minimum lines of own code"),
        "given": _("Count the content of the starter file, too"),
        "equivalents": _("Equivalent names"),
        "criteria": _("Criteria"),
        "notes": _("Notes for graders, one per line (students do not see them)"),
        "bonus": _("Bonus: points are added to the maximum"),
        "bonus_at_most": _("Maximum bonus points above the total"),
        "adjustments": _("Deductions and caps"),
        "unless": _("Unless these checks are met"),
        "deduct": _("Deduction (0 to 1)"),
        "each": _("Deduct for each check that is not met"),
        "partly": _("In proportion to the missing items"),
        "adjustments.cap": _("Cap (0 to 1)"),
        "adjustments.at_least": _("Minimum share of checks met (0 to 1)"),
        "adjustments.criteria": _("Affected criteria"),
        "adjustments.description": _("Description for students"),
    }


def kind_words() -> dict[str, str]:
    """How kinds of checks are called, by the name of the kind."""
    return {kind: render_message(one.title()) for kind, one in _kinds().items()}


def _kinds() -> dict[str, type[CheckKind]]:
    return {kind: one for kind, one in check_kinds().items() if issubclass(one, CheckKind)}


@lru_cache(maxsize=16)
def _field_words(_language: str) -> Mapping[str, str]:
    """Those of the reader's language: a page asks for them a hundred times."""
    of_kinds = {name: title for one in _kinds().values() for name, title in one.field_titles.items()}
    return {name: render_message(title()) for name, title in of_kinds.items()} | field_words()


@lru_cache(maxsize=16)
def _field_hints(_language: str) -> Mapping[str, str]:
    """How fields of kinds of checks are filled in, in the reader's language."""
    of_kinds = {name: hint for one in _kinds().values() for name, hint in one.field_hints.items()}
    return {name: render_message(hint()) for name, hint in of_kinds.items()}


def field_word(name: str, place: str = "") -> str:
    """How one field is called, at its place in the form; one without a word here by its own name."""
    field_words = _field_words(current())
    return (
        field_words.get(_of_adjustment(name, place))
        or field_words.get(name)
        or name.replace("_", " ").capitalize()
    )


def _of_adjustment(name: str, place: str) -> str:
    """What a field of a deduction is called where its words are others than those of a check."""
    parts = place.split(".")
    return f"adjustments.{name}" if parts[0] == "adjustments" and len(parts) == 3 else ""


def hint(shape: Shape, place: str = "") -> str:
    """How a field is filled in; empty where that is plain."""
    of_adjustment = {
        "adjustments.deduct": _(
            "0.2 deducts 20 % of the maximum points of its criteria. Enter this or a cap."
        ),
        "adjustments.cap": _("0.2 limits its criteria to 20 % of their maximum points."),
        "adjustments.criteria": _("One per line, by title or short name. Empty: all criteria."),
    }
    if said_there := of_adjustment.get(_of_adjustment(shape.name, place)):
        return said_there
    by_name = {
        "part": _("The question ends at the next comment line that begins the same way."),
        "own_lines": _("With fewer lines, the check earns no points."),
        "given": _("Only where the cell was run."),
    }
    hints = {
        "lines": _("One per line."),
        "numbers": _("One number per line."),
        "pairs": _("One per line: name = value."),
        "lists": _("One per line: name = alternative, alternative."),
    }
    of_kind = _field_hints(current()).get(shape.name)
    return of_kind or by_name.get(shape.name) or hints.get(shape.kind, "")


def about_kind(kind: str) -> str:
    """What a kind of check does, in one sentence."""
    return render_message(_kinds()[kind].about())


def place_words(place: str, raw: Raw | None) -> str:
    """`criteria.0.checks.1.all_of` as people say it."""
    parts = place.split(".")
    words: list[str] = []
    here: object = raw
    for at, part in enumerate(parts):
        if part.isdecimal():
            here = here[int(part)] if isinstance(here, list) and int(part) < len(here) else None
            words.append(_one(parts[at - 1] if at else "", int(part) + 1, here))
        else:
            here = here.get(part) if isinstance(here, dict) else None
            if at + 1 >= len(parts) or not parts[at + 1].isdecimal():
                words.append(field_word(part, ".".join(parts[: at + 1])))
    return ", ".join(one for one in words if one)


def moved_words(place: str, raw: Raw) -> str:
    """Where a part stands that was moved, for those who cannot see it."""
    name, _dot, index = place.rpartition(".")
    rows = part_at(raw, name)
    one = rows[int(index)] if isinstance(rows[int(index)], dict) else {}
    title = str(one.get("title", "")) or kind_words().get(str(one.get("kind", "")), "")
    called = title or field_word(name.rpartition(".")[2])
    place_of = {"number": int(index) + 1, "count": len(rows)}
    return _("“%(title)s” is now at position %(number)s of %(count)s.", title=called, **place_of)


def _one(name: str, count: int, here: object) -> str:
    raw = here if isinstance(here, dict) else {}
    if name == "criteria":
        title = str(raw.get("title", ""))
        place = _("criterion %(count)s", count=count)
        return f"{place} {_('“%(title)s”', title=title)}" if title else place
    if name == "adjustments":
        title = str(raw.get("title", ""))
        place = _("deduction %(count)s", count=count)
        return f"{place} {_('“%(title)s”', title=title)}" if title else place
    if name in ("checks", "when", "unless"):
        kind = str(raw.get("kind", ""))
        return _("check %(count)s", count=count) + (
            f" ({kind_words()[kind]})" if kind in check_kinds() else ""
        )
    if name == "rungs":
        return _("step %(count)s", count=count)
    if name == "cases":
        return _("case %(count)s", count=count)
    return _("entry %(count)s", count=count)


def problem_words(
    problems: Iterable[Problem], raw: Raw | None, fields: Iterable[str]
) -> list[tuple[str, str]]:
    """The field each problem is at (empty: none) and the sentence about it."""
    names = set(fields)
    found = []
    for one in problems:
        at = one.place
        while at and at not in names:
            at = at.rpartition(".")[0]
        words = place_words(one.place, raw) if one.place else ""
        message = render_message(one.message)
        sentence = f"{words}: {message}" if words else message
        found.append((at, sentence[:1].upper() + sentence[1:]))
    return found


def field_problem(one: Problem) -> str:
    """What is wrong with a field, without its place in the rubric."""
    name = next((part for part in reversed(one.place.split(".")) if not part.isdecimal()), "")
    message = render_message(one.message)
    return message if name in ("", "checks") else f"{field_word(name)}: {message}"


def check_said(raw: Raw, own: Iterable[Shape], longest: int = 90) -> str:
    """A folded check in one line: the name it was given, else what was typed into its own fields."""
    typed = [raw.get(one.name) for one in own if one.kind not in ("checks", "parts", "yes", "choice")]
    words = [", ".join(one.split("\n")) for one in typed if isinstance(one, str) and one]
    label = str(raw.get("label") or "") or ", ".join(words)
    return label if len(label) <= longest else label[: longest - 1] + "…"


def difference_words(one: Difference) -> str:
    """A difference as a sentence."""
    if one.what == "field":
        about = field_word(one.field)
        return _("“%(name)s”: %(field)s was changed.", name=one.name, field=about)
    kind = kind_words().get(one.field, one.field)
    sentences: dict[str, Callable[[], str]] = {
        "total": lambda: _("The total changed from %(before)s to %(after)s points.", **_sides(one)),
        "criterion_added": lambda: _("“%(name)s” (%(after)s points) was added.", **_sides(one)),
        "criterion_removed": lambda: _("“%(name)s” (%(before)s points) was removed.", **_sides(one)),
        "order": lambda: _("The order of the criteria was changed."),
        "equivalents": lambda: _("The list of equivalent names was changed."),
        "adjustment_added": lambda: _("The deduction or cap “%(name)s” was added.", name=one.name),
        "adjustment_removed": lambda: _("The deduction or cap “%(name)s” was removed.", name=one.name),
        "bonus_at_most": lambda: _("The maximum bonus points above the total were changed."),
        "check_added": lambda: _("“%(name)s”: check added: %(kind)s.", name=one.name, kind=kind),
        "check_removed": lambda: _("“%(name)s”: check removed: %(kind)s.", name=one.name, kind=kind),
        "check_changed": lambda: _("“%(name)s”: check changed: %(kind)s.", name=one.name, kind=kind),
        "task": lambda: _("The task was changed."),
        "instructions": lambda: _("The instructions for the stage %(name)s were changed.", **_sides(one)),
        "share_solution": lambda: _("Show the solution to models: %(after)s.", **_sides(one)),
        "show_draft": lambda: _(
            "Show feedback to students while it is being generated: %(after)s.", **_sides(one)
        ),
        "spoken_language": lambda: _(
            "Feedback language changed from %(before)s to %(after)s.", **_sides(one)
        ),
        "file_added": lambda: _("File %(name)s was added.", **_sides(one)),
        "file_removed": lambda: _("File %(name)s was removed.", **_sides(one)),
        "file_changed": lambda: _("File %(name)s was changed.", **_sides(one)),
    }
    return sentences[one.what]() if one.what in sentences else one.what


def _sides(one: Difference) -> dict[str, object]:
    return {"name": one.name, "before": one.before, "after": one.after}


def conflict_words(one: Conflict) -> str:
    """What a person changed and does not fit the new grading, as a sentence."""
    person = number(one.person) if one.person is not None else "–"
    before = number(one.before) if one.before is not None else "–"
    after = number(one.after) if one.after is not None else "–"
    values = {"name": one.name, "person": person, "before": before, "after": after}
    sentences: dict[str, Callable[[], str]] = {
        "gone": lambda: _("“%(name)s” is not in the new rubric. The manual change is not kept.", **values),
        "too_many": lambda: _(
            "“%(name)s” is now worth %(after)s points. The manually given %(person)s points are "
            "reduced to that.",
            **values,
        ),
        "worth": lambda: _(
            "“%(name)s” is worth %(after)s points instead of %(before)s. The manually given "
            "%(person)s points are kept.",
            **values,
        ),
        "judged": lambda: _(
            "“%(name)s” is now rated %(after)s instead of %(before)s. The manually given %(person)s "
            "points are kept.",
            **values,
        ),
        "item": lambda: _(
            "“%(name)s” is now rated %(after)s instead of %(before)s. Its rubric items still apply.",
            **values,
        ),
        "remark": lambda: _(
            "The comment “%(name)s”, changed manually, no longer exists. The change is not kept.",
            **values,
        ),
    }
    return sentences[one.why]()
