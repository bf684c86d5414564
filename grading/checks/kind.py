"""The base class of kinds of checks: what a kind gives beside its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grading.checks.context import Context, Finding
from grading.checks.scope import Scope
from grading.domain.check import CheckBase
from grading.domain.messages import Message, MessageType


class CheckKind(CheckBase):
    """A kind of check: its fields, what it finds, and how the editor calls it."""

    title: ClassVar[MessageType]
    """What the kind is called in the editor."""
    about: ClassVar[MessageType]
    """What it checks, in one sentence for instructors."""
    field_titles: ClassVar[Mapping[str, MessageType]] = {}
    """What its fields are called in the editor, also those of the values in them."""
    field_hints: ClassVar[Mapping[str, MessageType]] = {}
    """How fields are filled in, where that is not plain."""
    usual_label: ClassVar[MessageType]
    """What checks of this kind are called that have no label."""
    combined: ClassVar[bool] = False
    """It is made of other checks, which have scopes of their own."""
    at_once: ClassVar[bool] = False
    """A student may know what it finds before submitting: it asks for something that can be seen missing."""

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """What the check finds in its scope. Raises AssignmentError where the check itself is wrong."""
        raise NotImplementedError

    def default_label(self) -> Message:
        """What a check without a label is called."""
        return self.usual_label()
