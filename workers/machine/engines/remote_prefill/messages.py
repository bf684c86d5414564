"""What remote prefill reports, in words: labels of its detail, and why a prompt was read where it was."""

from __future__ import annotations

from grading.domain.engine_details import label_code, strategy_code, title_code
from grading.domain.messages import define_message

DETAIL = "remote_prefill"

define_message(title_code(DETAIL), "Prefill of the prompt")
define_message(strategy_code(DETAIL, "direct"), "on the machine that wrote the answer")
define_message(strategy_code(DETAIL, "disaggregated"), "on another machine")
define_message(label_code(DETAIL, "reader"), "prefill machine")
define_message(label_code(DETAIL, "fault"), "error of the prefill machine")
define_message(label_code(DETAIL, "expected_s"), "expected time to first token")
define_message(label_code(DETAIL, "expected_direct_s"), "expected time to first token with local prefill")
define_message(label_code(DETAIL, "first_s"), "time to first token")
define_message(label_code(DETAIL, "tokenise_s"), "tokenization")
define_message(label_code(DETAIL, "queued_s"), "queued at the prefill machine")
define_message(label_code(DETAIL, "prefill_s"), "prefill")
define_message(label_code(DETAIL, "compress_s"), "compression")
define_message(label_code(DETAIL, "transfer_s"), "transferred, mostly during prefill")
define_message(label_code(DETAIL, "tail_s"), "transferred after prefill")
define_message(label_code(DETAIL, "convert_s"), "loaded into the KV cache")
define_message(label_code(DETAIL, "decode_s"), "decode")
define_message(label_code(DETAIL, "sent_bytes"), "transferred in total")
define_message(label_code(DETAIL, "kv_bits"), "KV cache quantized for transfer to")
define_message(label_code(DETAIL, "speed_up"), "speed-up: expected local time divided by actual time")

NO_READER = define_message("remote_prefill.no_reader", "No prefill machine is available.")
READERS_PAUSED = define_message(
    "remote_prefill.readers_paused",
    "After errors, these prefill machines are paused for %(seconds)s s: %(readers)s.",
)
FEW_TOKENS = define_message("remote_prefill.few_tokens", "Prefill is only %(tokens)s tokens.")
NOT_MEASURED = define_message(
    "remote_prefill.not_measured", "The time of this placement has not been measured yet."
)
NOT_TAKEN = define_message(
    "remote_prefill.not_taken",
    "This placement was not used for %(jobs)s jobs, so its time is measured again.",
)
CONFIGURED = define_message("remote_prefill.configured", "The strategy of this stage is %(strategy)s.")
PREDICTED = define_message("remote_prefill.predicted", "Local prefill takes about %(here)s, %(elsewhere)s.")
ON_READER = define_message("remote_prefill.on_reader", "on %(reader)s with transfer %(time)s")
ON_PAUSED_READER = define_message(
    "remote_prefill.on_paused_reader", "on %(reader)s not at all: it is paused after an error"
)
FAILED = define_message(
    "remote_prefill.failed", "%(error)s So prefill ran on the machine that wrote the answer."
)
FAILED_THERE = define_message(
    "remote_prefill.failed_there", "%(reason)s %(error)s So prefill ran on the machine that wrote the answer."
)
