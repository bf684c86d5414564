"""Boxes in which a stranger's program runs."""

from workers.sandbox.backends.selection import open_sandbox

__all__ = ["open_sandbox"]
