"""Programs in Python as a class writes them for one task: the same idioms, each in its own way."""

from __future__ import annotations

import random

_TABLES = ("sales", "orders", "visits", "prices", "stock")
_READ = """import csv

def read_{table}(path):
    with open(path) as file:
        return list(csv.DictReader(file))
"""
_STEPS = (
    """
    {a} = [row for row in {rows} if float(row['{x}']) > {n}]
    {rows} = {a} or {rows}
""",
    """
    {a} = {{}}
    for row in {rows}:
        {a}.setdefault(row['{y}'], []).append(float(row['{x}']))
""",
    """
    {a} = sorted({rows}, key=lambda row: (row['{y}'], -float(row['{x}'])))
    {rows} = {a}[:{n}]
""",
    """
    {a} = 0
    while {a} < len({rows}) and {rows}[{a}]['{y}'] != '{z}':
        {a} += {n}
""",
    """
    {a} = sum(float(row['{x}']) for row in {rows}) / max(len({rows}), {n})
    print(round({a}, 2))
""",
    """
    {a} = set()
    for row in {rows}:
        if row['{y}'].startswith('{z}'):
            {a}.add(row['{x}'])
""",
    """
    {a} = min({rows}, key=lambda row: abs(float(row['{x}']) - {n}))
    print({a}['{y}'])
""",
    """
    try:
        {a} = int({rows}[{n}]['{x}'])
    except (IndexError, ValueError):
        {a} = -{n}
""",
    """
    {a} = ''.join(row['{y}'][:{n}] for row in {rows} if row['{x}'].isdigit())
    print({a}.upper())
""",
    """
    {a} = {{row['{y}']: row['{x}'] for row in reversed({rows})}}
    print(len({a}) - {n})
""",
)
_COLUMNS = ("amount", "price", "weight", "score", "count", "length", "total")
_GROUPS = ("region", "product", "month", "shop", "customer", "country")
_WORDS = ("north", "blue", "may", "berlin", "new", "extra")
_NAMES = ("found", "result", "kept", "by_group", "chosen", "best", "limit", "seen", "part", "mean")


def programs(count: int, seed: int, steps: int = 5) -> list[str]:
    """So many programs; another seed is another task."""
    chance = random.Random(seed)
    table = chance.choice(_TABLES)
    return [_program(chance, table, steps) for _ in range(count)]


def _program(chance: random.Random, table: str, steps: int) -> str:
    made = [_READ.format(table=table)]
    names = chance.sample(("summary", "report", "analyse", "clean", "overview", "answer"), 2)
    for name in names:
        rows = chance.choice(("rows", "data", "lines", table))
        body = "".join(_step(chance, rows) for _ in range(steps))
        made.append(f"def {name}({rows}):\n{body}    return {rows}\n")
    calls = "".join(f"print({name}(read_{table}('{table}.csv')))\n" for name in names)
    return "\n".join([*made, calls])


def _step(chance: random.Random, rows: str) -> str:
    return chance.choice(_STEPS).format(
        rows=rows, a=chance.choice(_NAMES), x=chance.choice(_COLUMNS), y=chance.choice(_GROUPS),
        z=chance.choice(_WORDS), n=chance.randint(1, 40),
    )  # fmt: skip
