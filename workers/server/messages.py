"""Messages of the server: why rounds could not be graded, and why runs of their stages were lost or refused.

The web app loads this module by the entry point `server` of `grader.messages`, and nothing else here.
"""

from __future__ import annotations

from grading.domain.messages import define_message

CHECKS_FAILED = define_message(
    "round.checks_failed",
    "The checks of this submission failed. A person must review it.",
)
CHECKS_NEVER_ENDED = define_message(
    "round.checks_never_ended",
    "The checks of this submission never finished. A person must review it.",
)
NO_JOB = define_message(
    "round.no_job",
    "No job could be created for this submission. A person must check the stages of the rubric.",
)
NO_REPORT = define_message(
    "round.no_report", "The results could not be combined into a report. A person must review the submission."
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
MACHINE_DIED = define_message(
    "run.machine_died", "Machine %(machine)s stopped sending heartbeats before the run finished."
)
MACHINE_STALLED = define_message(
    "run.machine_stalled",
    "Machine %(machine)s made no progress for %(seconds)s s while %(phase)s. The run is retried, on "
    "another machine if possible.",
)
ORDER_LOST = define_message(
    "run.order_lost", "The task for this run was lost in the queue. It is sent again."
)
GRADING_FIRST = define_message(
    "run.grading_first",
    "The machine was needed for grading. The run is sent again when a machine is idle.",
)
NO_RESULT = define_message(
    "run.no_result",
    "The machine's result does not follow the schema. It may run another version than the server: "
    "update it with grader deploy.",
)
