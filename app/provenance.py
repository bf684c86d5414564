"""How results came about, in plain words: for the fold below a result and the page of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grading.jobs import Provenance
from grading.outcome import Report
from grading.store.prompts import MOST_BYTES, Missing

Rows = list[tuple[str, list[str]]]
"""A label and a cell for each result."""
NOTHING = "–"

NOT_KEPT: Mapping[Missing, str] = {
    "not over": "This run is not over yet. Its prompt comes with its result.",
    "lost": "There is no prompt: the machine was lost before it answered.",
    "no prompt": "There is no prompt: the run failed before one was made.",
    "not sent": "The prompt was not kept: the machine did not send it along. It may run an older version of "
    "Grader, or its answer was found again in a copy without the prompt.",
    "too large": f"The prompt was not kept: it is larger than {MOST_BYTES // 1024**2} MB.",
    "removed": "The prompt is no longer kept: what machines were sent and answered is removed after the days "
    "that results_days in config.toml says.",
}
_SAMPLING: Mapping[str, Callable[[Any], str]] = {
    "temperature": lambda t: f"temperature {t}" if t else "temperature 0: always the likeliest token",
    "top_p": lambda p: f"from the likeliest tokens that together have {p}",
    "seed": lambda seed: f"seed {seed}",
    "max_tokens": lambda n: f"at most {n} tokens",
    "num_predict": lambda n: f"at most {n} tokens",
    "num_ctx": lambda n: f"a context of {n} tokens",
    "format": lambda name: _FORMATS.get(name, f"format {name}"),
    "rules": lambda version: f"rules {version}",
}
_FORMATS: Mapping[Any, str] = {
    "json_schema_bound": "every token bound to the answer's schema",
    "json_schema": "the server was asked to bind the answer to its schema",
    "json_schema, not proved to be enforced": "the server was asked to bind the answer to its schema, which "
    "it may not have done",
    "none: the server ignores json_schema": "the answer not bound to a schema, as the server ignores it",
    "none: the server refuses json_schema": "the answer not bound to a schema, as the server refuses it",
    "none": "the answer not bound to a schema",
}
_TIMINGS = (
    ("Waited for room", "queued_s"),
    ("Loaded the model", "load_s"),
    ("Read the prompt", "prompt_s"),
    ("Wrote the answer", "output_s"),
)


def report_rows(report: Report) -> Rows:
    """A cell for each stage of a report."""
    return rows(list(report.stages.values()))


def rows(found: Sequence[Provenance]) -> Rows:
    """A cell for each result; what no engine told is left out."""
    timed = [
        (label, [seconds(getattr(p.timings, name)) for p in found])
        for label, name in _TIMINGS
        if any(getattr(p.timings, name) is not None for p in found)
    ]
    return [
        ("Machine", [p.machine for p in found]),
        ("Engine", [p.engine or NOTHING for p in found]),
        ("Model", [p.model if p.uses_model else f"{p.model} (no language model)" for p in found]),
        ("Model digest", [p.digest or NOTHING for p in found]),
        ("Prompt", [f"{p.prompt_version} {p.prompt_hash[:16]}".strip() or NOTHING for p in found]),
        ("Tokens of the prompt", [_prompt_tokens(p) for p in found]),
        ("Tokens written", [str(p.tokens.output) for p in found]),
        ("First token after", [seconds(p.first_token_s) for p in found]),
        ("Took", [f"{p.seconds:.1f} s" for p in found]),
        *timed,
        ("Sampling", [sampling(p.sampling) for p in found]),
        ("Answer repaired", ["yes" if p.repaired else "no" for p in found]),
    ]


def _prompt_tokens(found: Provenance) -> str:
    """None from a cache goes unsaid: most servers do not tell."""
    cached = f", {found.tokens.cached} of them from the cache" if found.tokens.cached else ""
    return f"{found.tokens.prompt}{cached}"


def seconds(value: float | None) -> str:
    """A duration, or that it is not known."""
    return NOTHING if value is None else f"{value:.2f} s"


def sampling(values: Mapping[str, Any]) -> str:
    """How the tokens were drawn; settings not known here as they are called."""
    said = [
        _SAMPLING[name](value) if name in _SAMPLING else f"{name.replace('_', ' ')} {value}"
        for name, value in values.items()
        if value is not None
    ]
    return ", ".join(said) or NOTHING
