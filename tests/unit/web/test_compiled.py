"""Templates are compiled once for each language, with their texts in them."""

from __future__ import annotations

from flask import Flask
from jinja2 import DictLoader

from app.web.compiled import Compiled


def environment() -> Compiled:
    app = Flask(__name__)
    templates = {
        "page.html": '{% extends "frame.html" %}{% block main %}<h1>{{ _("Home") }}</h1>{% endblock %}',
        "frame.html": '<p>{{ _("Courses") }}</p>{% block main %}{% endblock %}',
        "asked.html": "{{ _(name) }}, {{ _('%(count)s more', count=3)|upper }}",
        "filled.html": "{{ _('%(done)s of %(all)s, 100 %%', done=done, all=7) }} {{ _('%(one)d', one=1) }}",
    }
    made = Compiled(app, autoescape=True, extensions=["jinja2.ext.i18n"])
    made.loader = DictLoader(templates)
    return made


def test_each_language_has_its_own_templates() -> None:
    found = environment()
    # nothing is asked while they are shown: there is no `_` here
    assert found._of("de").get_template("page.html").render() == "<p>Kurse</p><h1>Start</h1>"
    assert found._of("en").get_template("page.html").render() == "<p>Courses</p><h1>Home</h1>"
    assert found.get_template("page.html").render() == "<p>Courses</p><h1>Home</h1>", "outside of a request"


def test_values_stand_where_the_text_has_them() -> None:
    found = environment()._of("en").get_template("filled.html")
    shown = found.render(_=lambda text, **values: text % values, done="<b>")
    assert shown == "&lt;b&gt; of 7, 100 % 1"


def test_a_text_that_is_made_or_goes_on_elsewhere_is_still_asked_for() -> None:
    found = environment()._of("de")
    asked: list[object] = []

    def text(one: str, **values: object) -> str:
        asked.append((one, values))
        return "<b>"

    shown = found.get_template("asked.html").render(_=text, name="Home")
    assert asked == [("Home", {}), ("%(count)s more", {"count": 3})]
    assert shown == "&lt;b&gt;, &lt;B&gt;"
