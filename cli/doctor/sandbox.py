"""Whether students' work can be run on this computer, and in which languages."""

from __future__ import annotations

from collections.abc import Iterator

from cli.doctor.finding import Finding, Patient, ok, warning
from grading.execution.model import TrialLanguage
from workers.sandbox.backends import open_sandbox
from workers.sandbox.runtimes import find_runtime

LANGUAGES: tuple[tuple[TrialLanguage, str], ...] = (("python", "Python"), ("r", "R"))
REMEDY = "mend it, or set [checks] sandbox to none, if nothing is to be run; docs/sandbox.md has more"


def check(patient: Patient) -> Iterator[Finding]:
    """The sandbox and the interpreters in it."""
    settings = patient.config.checks
    if settings.sandbox == "none":
        yield ok("sandbox", "no work is run, as [checks] sandbox says")
        return
    sandbox = open_sandbox(settings.sandbox, engine=settings.engine, image=settings.image)
    if problem := sandbox.problem():
        yield warning("sandbox", problem, REMEDY)
        return
    yield ok("sandbox", f"work is run in {sandbox.name}")
    for language, name in LANGUAGES:
        runtime = find_runtime(language, settings)
        said = f"work in {name} is run"
        remedy = f"mend it, unless no course uses {name}; its work is graded without a run until then"
        yield warning("sandbox", runtime.problem, remedy) if runtime.problem else ok("sandbox", said)
