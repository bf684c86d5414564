"""Makes one PDF in a process of its own, which has little time, little memory and one folder.

Reads the data for the template from standard input and writes the PDF to standard output.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

MEMORY = 2 * 1024**3
"""Bytes of addresses; pages of a long notebook with pictures take a few hundred MB."""
CPU_S = 40


def main() -> None:
    """The folder it runs in holds the template and pictures, and nothing else can be read from it."""
    for kind, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (most, most))
    import typst

    here = Path.cwd()
    pdf = typst.compile(
        str(here / "result.typ"),
        root=str(here),
        ignore_system_fonts=True,
        sys_inputs={"data": sys.stdin.buffer.read().decode()},
        package_path=str(here / "none"),
        package_cache_path=str(here / "none"),
    )
    sys.stdout.buffer.write(pdf)


if __name__ == "__main__":
    main()
