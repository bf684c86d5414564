"""Boxes in which a stranger's program runs."""

from workers.checks.sandbox.choose import open_sandbox

__all__ = ["open_sandbox"]
