"""Messages of the server: why rounds could not be graded, and why runs of their stages were lost or refused.

The web app loads this module by the entry point `server` of `grader.messages`, and nothing else here.
"""

from __future__ import annotations

from grading.domain.messages import define_message

CHECKS_FAILED = define_message(
    "round.checks_failed",
    "This submission could not be examined: the checks failed on it. A person must look at it.",
)
CHECKS_NEVER_ENDED = define_message(
    "round.checks_never_ended",
    "The checks never came to an end on this submission; a person must look at it.",
)
NO_JOB = define_message(
    "round.no_job",
    "No work for the machines could be made of this submission; a person must look at the rubric's stages.",
)
NO_REPORT = define_message(
    "round.no_report", "No report could be put together from the results; a person must look at it."
)
PHASES = {
    "waiting": define_message("run.phase.waiting", "waiting"),
    "queued": define_message("run.phase.queued", "queued"),
    "starting": define_message("run.phase.starting", "starting"),
    "loading": define_message("run.phase.loading", "loading"),
    "reading": define_message("run.phase.reading", "reading"),
    "generating": define_message("run.phase.generating", "generating"),
}
"""What a run is doing, in the words of leases."""
MACHINE_DIED = define_message("run.machine_died", "Machine %(machine)s stopped answering before it was done.")
MACHINE_STALLED = define_message(
    "run.machine_stalled",
    "Machine %(machine)s has not moved for %(seconds)s s while %(phase)s; others are tried first.",
)
ORDER_LOST = define_message("run.order_lost", "The order to do this was lost on its way; it is sent again.")
NO_RESULT = define_message(
    "run.no_result",
    "The machine's answer has not the shape of a result; it may run another version than the server.",
)
