"""How people sign in: the part `[sign_on]` of config.toml."""

from __future__ import annotations

from grading.domain.base_value import Value


class SignOn(Value):
    """How people sign in: with a password of Grader, or through the school's providers."""

    local_accounts: bool = True
    """Whether passwords of Grader work; with false, only those of break-glass accounts do."""
