"""The interpreters that run students' work: a module a language, found by its name.

How a sandbox is made belongs to `workers/sandbox/backends`, what runs inside it to `workers/sandbox/drivers`.
"""

from __future__ import annotations

from grading.config.settings import SandboxSettings
from grading.execution.values import CodeLanguage
from workers.sandbox.runtimes.base import Runtime
from workers.sandbox.runtimes.python import find_python
from workers.sandbox.runtimes.r import find_r


def find_runtime(language: CodeLanguage, settings: SandboxSettings) -> Runtime:
    """The runtime of a language, as it is when this process first asks; look at its `problem`."""
    return find_r(settings) if language == "r" else find_python(settings)
