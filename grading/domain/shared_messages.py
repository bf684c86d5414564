"""Messages that several packages share: no such course, submission, person, version."""

from __future__ import annotations

from collections.abc import Sequence

from grading.domain.messages import Message, define_message

NO_SUCH_COURSE = define_message("shared.no_such_course", "This course does not exist.")
NO_SUCH_ASSIGNMENT = define_message("shared.no_such_assignment", "This assignment does not exist.")
NO_SUCH_SUBMISSION = define_message("shared.no_such_submission", "This submission does not exist.")
NO_SUCH_FILE_OF_SUBMISSION = define_message("shared.no_such_file", "The submission has no file of this name.")
NO_SUCH_PERSON = define_message("shared.no_such_person", "This person does not exist.")
NO_SUCH_REQUEST = define_message("shared.no_such_request", "This request does not exist.")
NOT_A_STUDENT = define_message(
    "shared.not_a_student",
    "One of these people is not a student in this course. Reload the page and try again.",
)
ACCOUNT_DISABLED = define_message("shared.account_disabled", "This student's account is disabled.")
SENTENCES = define_message("shared.sentences", "%(first)s %(then)s")


def sentences(parts: Sequence[Message]) -> Message:
    """One after the other, each once; empty where there are none."""
    once = list({part.message: part for part in parts}.values())
    if len(once) < 2:
        return once[0] if once else Message()
    half = (len(once) + 1) // 2  # in halves, as messages may not be nested deep
    return SENTENCES(first=sentences(once[:half]), then=sentences(once[half:]))
