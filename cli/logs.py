"""What processes say while they run: one line a message on standard error."""

from __future__ import annotations

import logging

OURS = ("app", "cli", "grading", "workers")


def configure() -> None:
    """Show warnings of everybody and what our own packages tell of their work."""
    logging.basicConfig(
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )
    for name in OURS:
        logging.getLogger(name).setLevel(logging.INFO)
