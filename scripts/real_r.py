"""Run a real homework in R in this machine's sandbox, cell by cell: its starter and its solution.

Usage: python scripts/real_r.py FOLDER

FOLDER holds *_solution.ipynb and *_template.ipynb of a notebook that reads customer_feedback.csv,
transaction_log.csv and product_catalog.csv; tables of those names and columns are made here. Exits 1 when a
cell of the solution does not run.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from grading.config.settings import Limits, SandboxSettings
from grading.documents import UploadedFile, read_document
from grading.execution.path_repair import places_of, repair
from grading.execution.values import Code, Execution, Request, Work
from workers.sandbox.backends import open_backend
from workers.sandbox.plan_runner import Shelf
from workers.sandbox.request_runner import Executor
from workers.sandbox.runtimes.r import find_r

ROWS = 40
WORDS = ("great lamp, I love it", "terrible, awful packing", "works as it should", "  Amazing  value ")
GOODS = ("wireless headset 2 pro", " GAMING chair 7", "deluxe kettle", "plain mug 300 ml")


def feedback(row: int) -> Iterable[object]:
    """A row of customer_feedback.csv."""
    return row, 1 + row * 7 % 12, WORDS[row % 4], f"person{row}@example.org", f"2024-02-{1 + row % 28:02}"


def transaction(row: int) -> Iterable[object]:
    """A row of transaction_log.csv; every fifth has a date of another form."""
    moment = f"{1 + row % 12}/{1 + row % 28}/24 {8 + row % 12}:30"
    if row % 5 == 4:
        moment = f"2024-03-{1 + row % 28:02}"
    return row, 1 + row * 5 % 12, moment, 20 + row * 3.25, ("Pending", "Completed")[row % 2]


def product(row: int) -> Iterable[object]:
    """A row of product_catalog.csv."""
    return row, GOODS[row % 4], (" audio", "FURNITURE", "Kitchen ")[row % 3], 5 + row * 1.5, "Yes"


TABLES = {
    "customer_feedback.csv": (
        ("FeedbackID", "CustomerID", "Feedback_Text", "Contact_Info", "Feedback_Date"),
        feedback,
    ),
    "transaction_log.csv": (
        ("LogID", "CustomerID", "Transaction_DateTime", "Amount", "Status"),
        transaction,
    ),
    "product_catalog.csv": (
        ("ProductID", "Product_Description", "Category", "Price", "In_Stock"),
        product,
    ),
}


def tables(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Path in an execution and content of each table."""
    for name, (columns, row) in TABLES.items():
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([columns, *(row(n) for n in range(1, ROWS + 1))])
        content = (folder / name).read_bytes()
        yield f"data/{name}", content
        # as a browser names the second download
        yield f"data/{name.replace('.', ' (1).')}", content


def run(executor: Executor, notebook: Path, files: dict[str, bytes]) -> Execution:
    """Run a notebook beside the files."""
    document = read_document(UploadedFile(name=notebook.name, data=notebook.read_bytes()))
    places = places_of(files)
    cells = []
    for cell in document.cells:
        if cell.kind == "code":
            source, repairs = repair(cell.source, "r", places)
            cells.append(Code(number=cell.number, source=source))
            for line, was, now in repairs:
                print(f"  cell {cell.number}, line {line}: {was} is read as {now}")
    work = Work(document=notebook.name, kind="notebook", language="r", cells=tuple(cells))
    names = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    with Shelf() as shelf:
        for path, name in names.items():
            shelf.put(name, files[path])
        request = Request(work=work, files=names, variables=("products_clean",), limits=Limits())
        return executor.run(request, shelf.mounts(names))


def main() -> int:
    """Run both, print what came of each cell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    settings = SandboxSettings()
    executor = Executor(open_backend(settings.backend), lambda _: find_r(settings))
    if problem := executor.problem("r"):
        sys.exit(problem)
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        files = dict(tables(Path(place)))
    for notebook in sorted(folder.glob("*.ipynb")):
        print(notebook.name)
        execution = run(executor, notebook, files)
        for cell in execution.cells:
            print(f"  cell {cell.number}: {cell.state} {cell.seconds:.2f} s {cell.error}")
        missing = ", ".join(execution.missing) or "nothing"
        print(f"  {execution.end} in {execution.seconds:.2f} s; missing: {missing}")
        if "solution" in notebook.name:
            failed += sum(cell.state != "ran" for cell in execution.cells) + (not execution.cells)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
