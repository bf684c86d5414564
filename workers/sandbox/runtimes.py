"""Finding what runs students' work, by its language."""

from __future__ import annotations

from grading.config.sandbox import Checks
from grading.execution.model import TrialLanguage
from workers.sandbox.runtimes_python import find_python
from workers.sandbox.runtimes_r import find_r
from workers.sandbox.toolbox import Toolbox


def find_toolbox(language: TrialLanguage, settings: Checks) -> Toolbox:
    """The toolbox of a language, as it is when this process first asks; look at its `problem`."""
    return find_r(settings) if language == "r" else find_python(settings)
