"""The base class of kinds of checks: what a kind gives beside its fields."""

from __future__ import annotations

from typing import ClassVar

from grading.checks.context import Context, Finding
from grading.checks.scope import Scope
from grading.domain.check import CheckBase


class CheckKind(CheckBase):
    """A kind of check. Its docstring's first sentence is what instructors read about it."""

    usual_label: ClassVar[str] = ""
    """What checks of this kind are called that have no label."""
    combined: ClassVar[bool] = False
    """It is made of other checks, which have scopes of their own."""
    at_once: ClassVar[bool] = False
    """A student may know what it finds before submitting: it asks for something that can be seen missing."""

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """What the check finds in its scope. Raises AssignmentError where the check itself is wrong."""
        raise NotImplementedError

    def default_label(self) -> str:
        """What a check without a label is called."""
        return self.usual_label
