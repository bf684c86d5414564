"""What a run found, as lines for people, tables for the documentation, and plots. All from its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.cluster import svg

FILE = "strategies.json"
Found = Mapping[str, Any]
Rows = Sequence[tuple[str, ...]]


def lines(found: Found) -> Iterator[str]:
    """Everything that was measured."""
    yield "  ".join(f"{name} {value}" for name, value in found["machine"].items() if value != "")
    tail = found["tail"]
    yield ""
    yield (
        f"hand-off of {tail['prompt']} tokens: reading {_middle(tail['read_s'])} s, from its end to the "
        f"first token {_middle(tail['tail_s'])} s, {tail['share']['median']:.1%} of reading"
    )
    tables = (GAINS, gains(found)), (grid_head(found), grid(found)), (CHOSEN, chosen(found))
    for head, rows in (*tables, (DRAFTS, drafts(found))):
        yield ""
        yield from _aligned([head, *rows])
    yield ""
    for target in found["targets"]:
        met = {True: "met", False: "MISSED", None: "not measured"}[target["met"]]
        yield f"  {met:<13} {target['value']:>7}  {target['aim']:<9} {target['what']}"
    yield f"took {found['seconds']:g} s"


GAINS = ("sending / reading", "serial", "reckoned", "overlapped", "reckoned", "gain", "reckoned", "ratio")


def gains(found: Found) -> Rows:
    """Overlapped beside serial, a row a link."""
    return [
        (
            f"{one['sending']:g}",
            f"{_middle(one['serial_s'])} s",
            f"{one['reckoned_serial_s']:.2f} s",
            f"{_middle(one['overlapped_s'])} s",
            f"{one['reckoned_overlapped_s']:.2f} s",
            f"{one['gain']:.2f} ×",
            f"{one['reckoned']:.2f} ×",
            f"{one['gain'] / one['reckoned']:.2f}",
        )
        for one in found["gains"]
    ]


def grid_head(found: Found) -> tuple[str, ...]:
    """Names of strategies after the two lengths."""
    return ("prompt", "answer", *found["cells"][0]["measured"])


def grid(found: Found) -> Rows:
    """Seconds of two prompts by each strategy, to the arithmetic in brackets; the least is bold."""
    rows = []
    for cell in found["cells"]:
        said = []
        for name, spread in cell["measured"].items():
            value = f"{spread['median']:.2f}"
            bold = f"**{value}**" if name == cell["best"] else value
            said.append(f"{bold} ({spread['median'] / cell['reckoned'][name]:.2f})")
        rows.append((f"{cell['prompt']:,}", str(cell["output"]), *said))
    return rows


CHOSEN = (
    "prompt",
    "known",
    "sending / reading",
    "direct",
    "disaggregated",
    "planner",
    "it chose",
    "to the best",
)


def chosen(found: Found) -> Rows:
    """The planner, a row a setting."""
    return [
        (
            f"{one['setting']['prompt']:,}",
            f"{one['setting']['shared']:,}",
            f"{one['setting']['sending']:g}",
            f"{_middle(one['direct_s'])} s",
            f"{_middle(one['disaggregated_s'])} s",
            f"{_middle(one['auto_s'])} s",
            ", ".join(f"{way} {count} ×" for way, count in sorted(one["chose"].items())),
            f"{one['off']:.2f}",
        )
        for one in found["chosen"]
    ]


DRAFTS = ("draft model", "answer", "without", "with", "gain", "proposed", "accepted")


def drafts(found: Found) -> Rows:
    """Writing with a draft model, a row each."""
    return [
        (
            one["draft"],
            str(one["output"]),
            f"{_middle(one['plain_s'])} s",
            f"{_middle(one['drafted_s'])} s",
            f"{one['gain']:.2f} ×",
            str(one["proposed"]),
            str(one["accepted"]),
        )
        for one in found["drafts"]
    ]


def load(folder: Path) -> Found:
    """What was written before."""
    found: Found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return found


def write(found: Found, folder: Path) -> list[Path]:
    """The JSON and the plots, as files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {FILE: json.dumps(found, indent=1) + "\n", "strategies-overlap.svg": _overlap(found)}
    longest = max(cell["prompt"] for cell in found["cells"])
    outputs = [cell["output"] for cell in found["cells"]]
    for cell in found["cells"]:
        if cell["prompt"] == longest and cell["output"] in (min(outputs), max(outputs)):
            made[f"strategies-{cell['output']}.svg"] = _cell(cell)
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in made]


def _overlap(found: Found) -> str:
    rows = []
    for one in found["gains"]:
        rows.append((f"sending {one['sending']:g} of reading", one["gain"]))
        rows.append(("by arithmetic", one["reckoned"]))
    return svg.bars("Serial to overlapped, until the first token", rows, "×")


def _cell(cell: Mapping[str, Any]) -> str:
    rows = sorted(
        ((name, spread["median"]) for name, spread in cell["measured"].items()), key=lambda row: row[1]
    )
    title = f"Two prompts of {cell['prompt']:,} tokens, answers of {cell['output']}"
    return svg.bars(title, rows, "s")


def _middle(spread: Mapping[str, float]) -> str:
    return f"{spread['median']:.2f}"


def _aligned(rows: Rows) -> Iterator[str]:
    wide = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, wide, strict=True))
