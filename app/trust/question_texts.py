"""Questions to the instructor in words, and the notes that answers become: templates for each cause."""

from __future__ import annotations

from dataclasses import dataclass

from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import ngettext, number
from grading.statistics.question_groups import STRUCTURES, Cause, Side, SideLevel
from grading.store.trust.questions import FoundQuestion, QuestionState

SIDES: dict[Side, str] = {
    "checks": N_("checks"),
    "model": N_("model"),
    "second": N_("second opinion"),
    "person": N_("people"),
}


@dataclass(frozen=True)
class ShownQuestion:
    """A question as the page shows it."""

    found: FoundQuestion
    text: str
    model: str
    """That worded it; empty: the template."""
    levels: str
    equal: bool
    """It asks whether two names are equal."""


def shown(found: FoundQuestion, state: QuestionState | None) -> ShownQuestion:
    """A question with its words."""
    worded = state.wording if state is not None else ""
    return ShownQuestion(
        found=found,
        text=_worded(worded, found.group.count) if worded else question(found.group.cause, found.group.count),
        model=state.model if state is not None and worded else "",
        levels=levels(found.group.sides, found.highest),
        equal=found.group.cause.kind == "name",
    )


def _worded(text: str, count: int) -> str:
    return ngettext("%(num)s submission: %(text)s", "%(num)s submissions: %(text)s", num=count, text=text)


def named(cause: Cause) -> tuple[str, ...]:
    """What words about a cause must say."""
    return tuple(plain(one) for one in (cause.about, cause.instead) if one and cause.kind != "unsupported")


def plain(name: str) -> str:
    """A name as people write it: structures such as `while` without parentheses."""
    return name.removesuffix("()") if name in STRUCTURES else name


def question(cause: Cause, count: int) -> str:
    """The template's words."""
    names = {"about": plain(cause.about), "instead": plain(cause.instead)}
    if cause.kind == "name" and cause.about.endswith("()"):
        return ngettext(
            "%(num)s submission uses %(instead)s where the rubric names %(about)s. Are they equal?",
            "%(num)s submissions use %(instead)s where the rubric names %(about)s. Are they equal?",
            num=count,
            **names,
        )
    if cause.kind == "name":
        return ngettext(
            "%(num)s submission defines %(instead)s where the rubric names %(about)s. Are they equal?",
            "%(num)s submissions define %(instead)s where the rubric names %(about)s. Are they equal?",
            num=count,
            **names,
        )
    if cause.kind == "value" and cause.instead:
        return ngettext(
            "%(num)s submission fails “%(instead)s” of the check “%(about)s”. What should that cost?",
            "%(num)s submissions fail “%(instead)s” of the check “%(about)s”. What should that cost?",
            num=count,
            **names,
        )
    return _other_question(cause, count)


def _other_question(cause: Cause, num: int) -> str:
    about = cause.about
    texts = {
        "value": lambda: ngettext(
            "%(num)s submission shows another value or form than “%(about)s” expects. Does it count?",
            "%(num)s submissions show another value or form than “%(about)s” expects. Does it count?",
            num=num, about=about,
        ),
        "missing": lambda: ngettext(
            "In %(num)s submission “%(about)s” finds nothing to look at. How should it be rated?",
            "In %(num)s submissions “%(about)s” finds nothing to look at. How should they be rated?",
            num=num, about=about,
        ),
        "language": lambda: ngettext(
            "%(num)s submission has code in %(other)s rather than %(language)s. Does it count?",
            "%(num)s submissions have code in %(other)s rather than %(language)s. Does it count?",
            num=num, other=cause.instead, language=about,
        ),
        "check": lambda: ngettext(
            "%(num)s submission does not meet the check “%(about)s”. Is what it does instead right, too?",
            "%(num)s submissions do not meet the check “%(about)s”. Is what they do instead right, too?",
            num=num, about=about,
        ),
        "unsupported": lambda: ngettext(
            "The model gives %(num)s submission a level that nothing else supports. Which level is right?",
            "The model gives %(num)s submissions a level that nothing else supports. Which level is right?",
            num=num, about=about,
        ),
        "other": lambda: ngettext(
            "%(num)s submission is rated differently, for no common cause. What decides the level here?",
            "%(num)s submissions are rated differently, for no common cause. What decides the level here?",
            num=num, about=about,
        ),
    }  # fmt: skip
    return texts[cause.kind]()


def levels(sides: tuple[SideLevel, ...], highest: int) -> str:
    """Who gave which level in the mean, and how many students asked for a regrade."""
    given = [
        _(
            "%(side)s: level %(level)s of %(highest)s",
            side=_(SIDES[one.side]),
            level=number(one.level),
            highest=highest,
        )
        for one in sides
        if one.level is not None
    ]
    given += [
        ngettext("%(num)s regrade request", "%(num)s regrade requests", one.count)
        for one in sides
        if one.side == "student"
    ]
    return "; ".join(given)


def note(cause: Cause, equal: bool | None, more: str) -> str:
    """An answer as a note for graders."""
    names = {"instead": plain(cause.instead), "about": plain(cause.about)}
    first = ""
    if equal is not None:
        first = (
            _("%(instead)s counts as %(about)s.", **names)
            if equal
            else _("%(instead)s does not count as %(about)s.", **names)
        )
    return " ".join(f"{first} {more}".split())
