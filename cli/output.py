"""What commands print: counts in words."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """A number with its noun, `1 run` or `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
