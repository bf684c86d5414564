"""What speculative decoding reports, in words: labels of its detail, and why a draft model was used."""

from __future__ import annotations

from grading.domain.engine_details import label_code, strategy_code, title_code
from grading.domain.messages import define_message

DETAIL = "speculative"

define_message(title_code(DETAIL), "Use of the draft model")
define_message(strategy_code(DETAIL, "direct"), "not used")
define_message(strategy_code(DETAIL, "speculative"), "proposed tokens")
define_message(label_code(DETAIL, "draft_model"), "draft model")
define_message(label_code(DETAIL, "expected_s"), "expected time with the draft model")
define_message(label_code(DETAIL, "expected_direct_s"), "expected time without the draft model")
define_message(label_code(DETAIL, "rounds"), "rounds")
define_message(label_code(DETAIL, "proposed"), "tokens proposed")
define_message(label_code(DETAIL, "accepted"), "tokens accepted")
define_message(label_code(DETAIL, "read_s"), "prefill of the draft model")
define_message(label_code(DETAIL, "draft_s"), "time of the draft model")
define_message(label_code(DETAIL, "check_s"), "verification by the model")

BUSY = define_message(
    "speculative.busy", "The batch had other answers, so each step wrote one token of each."
)
SHORT = define_message("speculative.short", "The answer ended before the draft model was used.")
CONFIGURED = define_message("speculative.configured", "The setting draft_always is true.")
REQUESTED = define_message("speculative.requested", "The measurement asked for this way.")
FOREIGN = define_message("speculative.foreign", "The model wrote a token that the draft model does not have.")
STEP_NOT_MEASURED = define_message(
    "speculative.step_not_measured", "The time of a step without the draft model has not been measured yet."
)
NOTHING_LEFT = define_message("speculative.nothing_left", "Fewer than two tokens are left to write.")
ACCEPTANCE_NOT_MEASURED = define_message(
    "speculative.acceptance_not_measured", "The acceptance rate has not been measured yet."
)
NEVER_PAYS = define_message(
    "speculative.never_pays",
    "Even if all proposed tokens were accepted, about %(tokens)s more tokens would take %(drafted)s "
    "with the draft model and %(direct)s without it.",
)
PREDICTED = define_message(
    "speculative.predicted",
    "About %(tokens)s more tokens take %(direct)s without the draft model and %(drafted)s with it, "
    "at %(proposals)s proposed tokens per round, of which %(accepted)s are accepted.",
)
NOT_TRIED = define_message(
    "speculative.not_tried",
    "The draft model was not used for %(answers)s answers, so its speed is measured again.",
)
