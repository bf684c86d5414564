"""What speculative decoding reports, in words: labels of its detail, and why a draft model was used."""

from __future__ import annotations

from grading.domain.engine_details import label_code, strategy_code, title_code
from grading.domain.messages import define_message

DETAIL = "speculative"

define_message(title_code(DETAIL), "Use of the draft model")
define_message(strategy_code(DETAIL, "direct"), "not used")
define_message(strategy_code(DETAIL, "speculative"), "proposed tokens")
define_message(label_code(DETAIL, "draft_model"), "draft model")
define_message(label_code(DETAIL, "expected_s"), "end expected after, with a draft")
define_message(label_code(DETAIL, "expected_direct_s"), "end expected after, without a draft")
define_message(label_code(DETAIL, "rounds"), "rounds")
define_message(label_code(DETAIL, "proposed"), "tokens proposed")
define_message(label_code(DETAIL, "accepted"), "tokens accepted")
define_message(label_code(DETAIL, "read_s"), "the draft model read the prompt")
define_message(label_code(DETAIL, "draft_s"), "the draft model proposed")
define_message(label_code(DETAIL, "check_s"), "the model checked")

BUSY = define_message(
    "speculative.busy", "Others were written at the same time, a token for all in each step."
)
SHORT = define_message("speculative.short", "The answer ended before it was time for a draft.")
CONFIGURED = define_message("speculative.configured", "The setting draft_always says so.")
FOREIGN = define_message("speculative.foreign", "The model wrote a token that the draft model does not have.")
STEP_NOT_MEASURED = define_message(
    "speculative.step_not_measured", "It is not known yet how long a step without a draft takes."
)
NOTHING_LEFT = define_message("speculative.nothing_left", "Nothing is left to propose.")
ACCEPTANCE_NOT_MEASURED = define_message(
    "speculative.acceptance_not_measured", "It is not known yet how many proposals are accepted."
)
NEVER_PAYS = define_message(
    "speculative.never_pays",
    "Even if all proposals were accepted, about %(tokens)s more tokens would take %(drafted)s with a draft "
    "and %(direct)s without.",
)
PREDICTED = define_message(
    "speculative.predicted",
    "About %(tokens)s more tokens take %(direct)s without a draft and %(drafted)s with %(proposals)s "
    "proposed at a time, of which %(accepted)s are accepted.",
)
NOT_TRIED = define_message(
    "speculative.not_tried", "A draft that nearly pays was not tried for %(answers)s answers."
)
