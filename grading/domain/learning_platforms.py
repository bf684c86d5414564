"""The kinds of learning platforms, and where each part of the system finds its code for them.

A platform is a name here and a module or package of that name beside those of the others:
`grading/integrations/` (its protocol, and `Settings`: the keys it adds to `[server]` of config.toml, if any),
`grading/store/integrations/` (`platform.PLATFORM`: its tables, what it hears of), `workers/server/delivery/`
(`start`: the threads that pull and send), `app/platforms/` (`PAGES`) and `cli/commands/` (its command, and
`diagnose` for `grader doctor`). Nothing else names one.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

LEARNING_PLATFORMS: tuple[str, ...] = ("lti", "canvas")
"""Names are those of modules, of outbox rows and of the first part of actions in the audit."""


def platform_modules(pattern: str) -> dict[str, Any]:
    """The module of each platform by its name; `pattern` is a path of modules with `{}` for the name."""
    return {name: import_module(pattern.format(name)) for name in LEARNING_PLATFORMS}
