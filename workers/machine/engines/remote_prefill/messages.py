"""What remote prefill reports, in words: labels of its detail, and why a prompt was read where it was."""

from __future__ import annotations

from grading.domain.engine_details import label_code, strategy_code, title_code
from grading.domain.messages import define_message

DETAIL = "remote_prefill"

define_message(title_code(DETAIL), "Where the prompt was read")
define_message(strategy_code(DETAIL, "direct"), "on the machine that wrote the answer")
define_message(strategy_code(DETAIL, "disaggregated"), "on another machine")
define_message(label_code(DETAIL, "reader"), "reading machine")
define_message(label_code(DETAIL, "fault"), "error of the reading machine")
define_message(label_code(DETAIL, "expected_s"), "first token expected after")
define_message(
    label_code(DETAIL, "expected_direct_s"), "first token expected after, read where it was written"
)
define_message(label_code(DETAIL, "first_s"), "first token after reading began")
define_message(label_code(DETAIL, "tokenise_s"), "turned into tokens")
define_message(label_code(DETAIL, "queued_s"), "waited at the reading machine")
define_message(label_code(DETAIL, "prefill_s"), "read")
define_message(label_code(DETAIL, "compress_s"), "compressed")
define_message(label_code(DETAIL, "transfer_s"), "sent, most of it while reading")
define_message(label_code(DETAIL, "tail_s"), "sent after reading")
define_message(label_code(DETAIL, "convert_s"), "put into the cache")
define_message(label_code(DETAIL, "decode_s"), "wrote the answer")
define_message(label_code(DETAIL, "sent_bytes"), "sent in all")
define_message(label_code(DETAIL, "kv_bits"), "keys and values rounded on their way to")
define_message(label_code(DETAIL, "speed_up"), "expected time of the direct way over the time it took")

NO_READER = define_message("remote_prefill.no_reader", "There is no reading machine.")
FEW_TOKENS = define_message("remote_prefill.few_tokens", "Only %(tokens)s tokens have to be read.")
NOT_MEASURED = define_message("remote_prefill.not_measured", "It is not known yet how long this way takes.")
NOT_TAKEN = define_message("remote_prefill.not_taken", "This way was not taken for %(jobs)s jobs.")
CONFIGURED = define_message("remote_prefill.configured", "The strategy of this stage is %(strategy)s.")
PREDICTED = define_message("remote_prefill.predicted", "Reading here takes about %(here)s, %(elsewhere)s.")
ON_READER = define_message("remote_prefill.on_reader", "on %(reader)s with sending %(time)s")
FAILED = define_message(
    "remote_prefill.failed", "%(error)s So the prompt was read where the answer is written."
)
FAILED_THERE = define_message(
    "remote_prefill.failed_there", "%(reason)s %(error)s So the prompt was read where the answer is written."
)
