"""Provenance of results in plain words: engine, examples, sampling, measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.web.i18n import fixed, number, render_message
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from grading.domain.engine_details import Measurement, label_code, strategy_code, title_code
from grading.domain.jobs import Provenance
from grading.domain.messages import known_messages
from grading.domain.report import Report
from grading.store.rounds.prompts import Missing

Rows = list[tuple[str, list[str]]]
"""A label and a cell for each result."""
NOTHING = "–"

NOT_KEPT: Mapping[Missing, str] = {
    "not over": N_("This run has not finished. Its prompt is stored with its result."),
    "lost": N_("No prompt: the machine stopped responding before it answered."),
    "no prompt": N_("No prompt: the run failed before the prompt was built."),
    "not sent": N_(
        "The prompt was not stored: the machine did not send it. It may run an older version of "
        "Grader, or its answer was recovered from a copy without the prompt."
    ),
    "too large": N_("The prompt was not stored: it is larger than 4 MB."),
    "erased": N_(
        "The prompt was deleted because it contained an example from the work of a person "
        "whose data was deleted."
    ),
    "removed": N_(
        "The prompt was deleted: prompts and raw answers are kept for results_days (see config.toml)."
    ),
}
_SAMPLING: Mapping[str, Callable[[Any], str]] = {
    "temperature": lambda t: (
        _("temperature %(number)s", number=number(t)) if t else _("temperature 0 (greedy)")
    ),
    "top_p": lambda p: _("top-p %(part)s", part=number(p)),
    "seed": lambda seed: _("seed %(number)s", number=seed),
    "max_tokens": lambda n: _("up to %(count)s tokens", count=n),
    "num_predict": lambda n: _("up to %(count)s tokens", count=n),
    "num_ctx": lambda n: _("context %(count)s tokens", count=n),
    "format": lambda name: _(_FORMATS[name]) if name in _FORMATS else _("format %(name)s", name=name),
    "rules": lambda version: _("rules %(version)s", version=version),
}
_FORMATS: Mapping[Any, str] = {
    "json_schema_bound": N_("constrained to the answer schema"),
    "json_schema": N_("schema sent to the server"),
    "json_schema, not proved to be enforced": N_("schema sent to the server, which may ignore it"),
    "none: the server ignores json_schema": N_("not constrained to a schema (ignored by the server)"),
    "none: the server refuses json_schema": N_("not constrained to a schema (refused by the server)"),
    "none": N_("not constrained to a schema"),
}
_TIMINGS = (
    (N_("Queue time"), "queued_s"),
    (N_("Model load time"), "load_s"),
    (N_("Prompt processing"), "prompt_s"),
    (N_("Generation"), "output_s"),
)


def report_rows(report: Report) -> Rows:
    """A cell for each stage of a report."""
    return rows(list(report.stages.values()))


def rows(found: Sequence[Provenance]) -> Rows:
    """A cell for each result; what no engine told is left out."""
    timed = [
        (_(label), [seconds(getattr(p.timings, name)) for p in found])
        for label, name in _TIMINGS
        if any(getattr(p.timings, name) is not None for p in found)
    ]
    return [
        *([(_("Machine"), [p.machine for p in found])] if any(p.machine for p in found) else []),
        (_("Engine"), [p.engine or NOTHING for p in found]),
        (
            _("Model"),
            [p.model if p.uses_model else _("%(name)s (no language model)", name=p.model) for p in found],
        ),
        (_("Model digest"), [p.digest or NOTHING for p in found]),
        (_("Prompt"), [f"{p.prompt_version} {p.prompt_hash[:16]}".strip() or NOTHING for p in found]),
        (_("Input tokens"), [_prompt_tokens(p) for p in found]),
        (_("Output tokens"), [str(p.tokens.output) for p in found]),
        (_("Time to first token"), [seconds(p.first_token_s) for p in found]),
        (_("Duration"), [f"{fixed(p.seconds, 1)} s" for p in found]),
        *timed,
        *detail_rows(found),
        (_("Sampling"), [sampling(p.sampling) for p in found]),
        *examples_row(found),
        (
            _("Response repaired after an invalid first attempt"),
            [_("yes") if p.repaired else _("no") for p in found],
        ),
    ]


def examples_row(found: Sequence[Provenance]) -> Rows:
    """Corrections that the models were shown, by number; nothing where there were none."""
    if not any(p.examples for p in found):
        return []
    numbers = [", ".join(key.partition(":")[0] for key in p.examples) for p in found]
    return [(_("Examples used"), [_("numbers %(list)s", list=one) if one else NOTHING for one in numbers])]


def detail_rows(found: Sequence[Provenance]) -> Rows:
    """What engines report of their strategies, whatever it is called: the strategy, why, and measurements."""
    made: Rows = []
    for name in dict.fromkeys(name for p in found for name in p.details):
        reported = [p.details.get(name) for p in found]
        title = _words_for(title_code(name), name)
        strategies = [
            _words_for(strategy_code(name, one.strategy), one.strategy) if one else NOTHING
            for one in reported
        ]
        made.append((title, strategies))
        if any(one and str(one.reason) for one in reported):
            reasons = [render_message(one.reason) or NOTHING if one else NOTHING for one in reported]
            made.append((_("%(title)s: why", title=title), reasons))
        for label in dict.fromkeys(label for one in reported if one for label in one.values):
            cells = [_measured(one.values.get(label) if one else None) for one in reported]
            made.append((f"{title}: {_words_for(label_code(name, label), label)}", cells))
    return made


def _words_for(code: str, name: str) -> str:
    """The message of that code where one is known and needs no parameters, else the name as words."""
    kind = known_messages().get(code)
    return name.replace("_", " ").strip() if kind is None or kind.names else render_message(kind())


def _measured(one: Measurement | None) -> str:
    """A number with its unit, or a text."""
    if one is None:
        return NOTHING
    if isinstance(one.value, str):
        return one.value or NOTHING
    if one.unit == "s":
        return seconds(one.value)
    if one.unit == "bytes":
        return _("%(count)s MB", count=fixed(one.value / 1e6, 1))
    return f"{number(one.value)} {one.unit}".strip()


def _prompt_tokens(found: Provenance) -> str:
    """None from a cache goes unsaid: most servers do not tell."""
    cached = _(", %(count)s of them from the cache", count=found.tokens.cached) if found.tokens.cached else ""
    return f"{found.tokens.prompt}{cached}"


def seconds(value: float | None) -> str:
    """A duration, or that it is not known."""
    return NOTHING if value is None else f"{fixed(value)} s"


def sampling(values: Mapping[str, Any]) -> str:
    """How the tokens were drawn; settings not known here as they are called."""
    parts = [
        _SAMPLING[name](value) if name in _SAMPLING else f"{name.replace('_', ' ')} {value}"
        for name, value in values.items()
        if value is not None
    ]
    return ", ".join(parts) or NOTHING
