"""What templates of all packages call: texts, addresses, moments, states, titles of stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from flask import Flask, current_app, g, has_request_context, request, session
from flask_wtf.csrf import generate_csrf
from jinja2 import pass_eval_context
from jinja2.nodes import EvalContext
from markupsafe import Markup, escape

from app.web import auth, markdown
from app.web.dates import relative
from app.web.i18n import DOMAIN, current, ngettext, number, when_in
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from grading.domain.lateness import Lateness
from grading.domain.stages import STAGES
from grading.store.courses.roster import Person

STATES: Mapping[str, str] = {
    "received": N_("received"),
    "queued": N_("queued"),
    "running": N_("being graded"),
    "graded": N_("graded"),
    "partial": N_("partly graded"),
    "failed": N_("grading failed"),
}
MOST_TOKENS = 4096
"""Sessions whose token an app remembers; then it begins anew."""
MOST_ADDRESSES = 20_000
"""Addresses an app remembers; then it begins anew."""


def _add_fast_globals(app: Flask) -> None:
    """Let templates of this app say texts and addresses by what is here."""
    # as the extension's own, which look everything up in the context three times over
    app.jinja_env.globals.update(_=_text, gettext=_text, ngettext=_counted)
    addresses = app.extensions["grader-addresses"] = Addresses(app)
    app.extensions["grader-form-tokens"] = {}
    app.jinja_env.globals.update(url_for=addresses.url_for, moment_words=moment, number_words=number)
    app.jinja_env.globals.update(state_told=state_words, badge_words=badge, form_token=form_token)
    app.jinja_env.globals.update(late_words=late, off_words=off, percent_words=percent, signing_in=signing_in)


@pass_eval_context
def _text(context: EvalContext, text: str, /, **values: object) -> str:
    """A text of a template in the reader's language, with `%(name)s` filled in and escaped."""
    found = DOMAIN.get_translations().gettext(text)
    words = Markup(found) if context.autoescape else found  # noqa: S704 - a text of ours
    return words % values if values or "%" in found else words


@pass_eval_context
def _counted(context: EvalContext, one: str, many: str, num: int, /, **values: object) -> str:
    """The text for so many; `%(num)s` is filled in, too."""
    found = DOMAIN.get_translations().ngettext(one, many, num)
    words = Markup(found) if context.autoescape else found  # noqa: S704 - a text of ours
    return words % {"num": num, **values}


class Addresses:
    """Remembers addresses that were made: they depend on nothing but what they are asked with."""

    def __init__(self, app: Flask) -> None:
        self._make = app.url_for
        self._made: dict[tuple[Any, ...], str] = {}

    def url_for(self, endpoint: str, **values: Any) -> str:
        """As Flask's."""
        # relative endpoints, and names with a `_` such as `_external`, depend on more
        more = any(name[0] == "_" and name != "_anchor" for name in values)
        if more or endpoint[0] == "." or not has_request_context():
            return self._make(endpoint, **values)
        root = request._get_current_object().root_path  # type: ignore[attr-defined]  # of the proxy
        key = (root, endpoint, *((name, type(one), one) for name, one in values.items()))
        try:
            cached = self._made.get(key)
        except TypeError:  # a list, which cannot be looked up
            return self._make(endpoint, **values)
        if cached is None:
            cached = self._make(endpoint, **values)
            if len(self._made) >= MOST_ADDRESSES:
                self._made.clear()
            self._made[key] = cached
        return cached


def address(endpoint: str, **values: Any) -> str:
    """Flask's `url_for`, of those that are remembered."""
    addresses: Addresses = current_app.extensions["grader-addresses"]
    return addresses.url_for(endpoint, **values)


def form_token() -> Markup:
    """The field that every form has, against forms of other sites."""
    cached: Markup | None = g.get("form_token")
    if cached is None:  # a request has one token, and lists have many forms
        cached = g.form_token = _token_field()
    return cached


def _token_field() -> Markup:
    """Signed once for a session: a token is good for as long as its session (`WTF_CSRF_TIME_LIMIT`)."""
    signed: dict[str, Markup] = current_app.extensions["grader-form-tokens"]
    cached = signed.get(session.get("csrf_token", ""))
    if cached is None:
        cached = Markup('<input type="hidden" name="csrf_token" value="{}">').format(generate_csrf())
        if len(signed) >= MOST_TOKENS:
            signed.clear()
        signed[session["csrf_token"]] = cached
    return cached


def moment(at: datetime) -> Markup:
    """Day and time, for programs too."""
    return _moment(current(), at)


@lru_cache(maxsize=8192)
def _moment(language: str, at: datetime) -> Markup:
    html = f'<time datetime="{at.isoformat(timespec="seconds")}">{escape(when_in(language, at))} UTC</time>'
    return Markup(html)  # noqa: S704 - escaped


def off(at: datetime, now: datetime) -> Markup:
    """How far off a moment is; scripts say it anew in the reader's own days."""
    html = f'<span class="off" data-moment="{at.isoformat(timespec="seconds")}">'
    return Markup(f"{html}{escape(relative(at, now))}</span>")  # noqa: S704 - escaped


def state_words(state: str) -> str:
    """The state of a round."""
    return _(STATES[state]) if state in STATES else state


def badge(state: str, waits_for_review: bool = False) -> Markup:
    """The same as a mark."""
    kind, words = ("review", _("awaits review")) if waits_for_review else (state, state_words(state))
    return Markup(f'<span class="state state-{escape(kind)}">{escape(words)}</span>')  # noqa: S704 - escaped


def signing_in(person: Person) -> Markup:
    """Whether somebody can sign in, and how that stands."""
    if person.disabled:
        return Markup('<span class="state state-failed">{}</span>').format(_("disabled"))
    if person.enters:
        return escape(_("has a password"))
    if person.invited_until:
        return escape(_("has a link until")) + " " + moment(person.invited_until)
    return Markup('<span class="text-body-secondary">{}</span>').format(_("no password yet"))


def percent(part: float) -> str:
    """A part as percent, with one decimal at most."""
    return number(round(100 * part, 1)) + " %"


def late(lateness: Lateness) -> Markup:
    """How late a submission is, as a mark; nothing where it is in time."""
    if not lateness.days:
        return Markup("")
    words = ngettext("%(num)s day late", "%(num)s days late", lateness.days)
    if lateness.credit < 1:
        words += f", {_('keeps %(part)s of its points', part=percent(lateness.credit))}"
    return Markup(f'<span class="state state-late">{escape(words)}</span>')  # noqa: S704 - escaped


def install(app: Flask) -> None:
    """Add it to the app's templates; packages add what only their own templates need by their blueprints."""
    _add_fast_globals(app)
    app.context_processor(auth.context)
    app.jinja_env.filters.update(markdown=markdown.markdown, visible=markdown.visible)
    app.jinja_env.globals.update(
        can=auth.can,
        exists=app.view_functions.__contains__,
        relative=relative,
    )


class StageTitles(Mapping[str, str]):
    """stage -> its title, in the reader's language."""

    def __getitem__(self, stage: str) -> str:
        return _(STAGES[stage].title.text)

    def __iter__(self) -> Iterator[str]:
        return iter(STAGES)

    def __len__(self) -> int:
        return len(STAGES)


def title_of(stage: str) -> str:
    """In the reader's language; a stage without a row is called by its name."""
    return StageTitles().get(stage, stage.capitalize())
