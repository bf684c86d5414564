"""Count which files of real work show signs of manipulation, to keep patterns off honest work.

Usage: python scripts/flagged.py FOLDER… [--json]

Reads each Python, R and Markdown file and each notebook below the folders as a submission without a starter.
Prints each flagged file and exits with 1 when more than one in fifty is flagged.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from grading.checks.manipulation.flags import manipulation_flags
from grading.documents import UploadedFile, read, set_apart
from grading.domain.errors import GraderError

ENDINGS = (".py", ".r", ".ipynb", ".rmd", ".md")
GOAL = 0.02


def figures(folders: list[Path]) -> dict[str, Any]:
    """What is printed."""
    files = sorted(p for folder in folders for p in folder.rglob("*") if p.suffix.lower() in ENDINGS)
    looked_at, size, flagged = 0, 0, {}
    began = time.process_time()
    for path in files:
        content = path.read_bytes()
        try:
            documents = set_apart(read([UploadedFile(path.name, content)]).documents, ())
        except GraderError:
            continue
        looked_at, size = looked_at + 1, size + len(content)
        flags = manipulation_flags(documents)
        if flags:
            flagged[str(path)] = [flag.message for flag in flags]
    seconds = time.process_time() - began
    return {
        "files": looked_at,
        "megabytes": round(size / 1e6, 2),
        "seconds": round(seconds, 1),
        "flagged": len(flagged),
        "share": round(len(flagged) / max(1, looked_at), 4),
        "signs": flagged,
    }


def main() -> int:
    """Look at all, print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = figures(options.folders)
    print(json.dumps(found, indent=2) if options.json else "\n".join(f"{k}: {v}" for k, v in found.items()))
    return 0 if found["share"] <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
