"""Messages of machines: flags of the stages, failures of runs, reasons of open circuits.

The web app loads this module by the entry point `machine` of `grader.messages`, and nothing else of machines.
"""

from __future__ import annotations

from grading.domain.messages import define_message, define_plural

PROMPT_LEAKED = define_message(
    "stage.prompt_leaked",
    "The model repeated words of its instructions. This can happen when a submission asks for them. "
    "Read the texts before you release them.",
)
ANSWER_SHORTENED = define_message(
    "stage.answer_shortened", "The model almost reached its token limit, so some of its texts are shortened."
)
QUOTES_NOT_FOUND = define_plural(
    "stage.quotes_not_found",
    "One quote was not found in the submission and removed.",
    "%(count)s quotes were not found in the submission and removed.",
)
INVISIBLE_CHARACTERS = define_plural(
    "stage.invisible_characters",
    "One invisible character was removed before the model read the text. Such characters can hide "
    "words or change their order.",
    "%(count)s invisible characters were removed before the model read the text. Such characters can "
    "hide words or change their order.",
)

STAGE_TAKEN_OUT = define_message(
    "machine.stage_taken_out", "This stage is drained on the machine until an operator resumes it."
)
SHORTENED = define_message("stage.shortened", "Shortened to fit the model's context: %(clauses)s.")
LONG_OUTPUTS_CUT = define_plural(
    "stage.shortened.long_outputs",
    "%(count)s long output was cut to the beginning and end",
    "%(count)s long outputs were cut to the beginning and end",
)
OUTPUTS_CUT = define_plural(
    "stage.shortened.outputs",
    "%(count)s output was cut to eight lines",
    "%(count)s outputs were cut to eight lines",
)
UNTOUCHED_CELLS_CUT = define_plural(
    "stage.shortened.untouched_cells",
    "%(count)s cell the student left as in the starter was reduced to one line",
    "%(count)s cells the student left as in the starter were reduced to one line",
)
LONG_LINES_CUT = define_plural(
    "stage.shortened.long_lines",
    "very long lines were cut in %(count)s place",
    "very long lines were cut in %(count)s places",
)
LONG_TEXTS_CUT = define_plural(
    "stage.shortened.long_texts",
    "the middle of %(count)s long text omitted",
    "the middle of %(count)s long texts omitted",
)
LONG_CODE_CUT = define_plural(
    "stage.shortened.long_code",
    "the middle of %(count)s long code block was omitted",
    "the middle of %(count)s long code blocks was omitted",
)
PIECES_LEFT_OUT = define_plural(
    "stage.shortened.pieces",
    "%(count)s piece in the middle of the submission omitted",
    "%(count)s pieces in the middle of the submission omitted",
)
EXAMPLES_LEFT_OUT = define_plural(
    "stage.shortened.examples",
    "%(count)s example omitted",
    "%(count)s examples omitted",
)
SOLUTION_CUT = define_message("stage.shortened.solution", "the middle of the solution omitted")
STARTER_CUT = define_message("stage.shortened.starter", "the middle of the starter file omitted")
TASK_CUT = define_message("stage.shortened.task", "the middle of the task omitted")

EXHAUSTED = define_message(
    "run.exhausted", "This run was started three times and never finished. It is not retried."
)
STAGE_NOT_HERE = define_message(
    "run.stage_not_here",
    "The machine does not run this stage: its configuration differs from the server's. Update it "
    "with grader deploy.",
)
OTHER_VERSION = define_message(
    "run.other_version",
    "The machine cannot read this job: it runs another version than the server. Update it with "
    "grader deploy.",
)
UNEXPECTED_FAILURE = define_message(
    "run.unexpected_failure",
    "The engine failed with an unexpected error (%(kind)s). Check the log of the worker.",
)
NO_SUCH_STAGE = define_message(
    "run.no_such_stage", "There is no stage %(stage)s. The stages of this machine are %(known)s."
)
TASK_TOO_LONG = define_message(
    "run.task_too_long",
    "The task and the rubric alone fill the model's context. Shorten them or increase the engine's context.",
)
HAND_IN_TOO_LONG = define_message(
    "run.hand_in_too_long", "The submission cannot be shortened so that it fits the model's context."
)
OTHER_SCHEMA = define_message("run.other_schema", "The answer does not follow the schema: %(faults)s")
LEVEL_WITHOUT_REASON = define_message(
    "run.level_without_reason",
    "judgements.%(criterion)s has a level but no reason; judge the work and say why.",
)
ANSWER_TOO_LONG = define_message("run.answer_too_long", "The answer is far longer than it may be")
NO_OBJECT = define_message("run.no_object", "The answer holds no complete JSON object%(where)s")
CRITERION_TWICE = define_message("run.criterion_twice", "judgements must hold every criterion exactly once")

WEIGHTS_CHANGED = define_message(
    "engine.weights_changed",
    "The model %(model)s on %(engine)s has other weights than before (%(now)s, before: %(before)s), so its "
    "grades would not be comparable. Load the former model again, or accept the new one with grader "
    "accept-models %(machine)s.",
)
WEIGHTS_UNKNOWN = define_message(
    "engine.weights_unknown",
    "%(engine)s no longer tells which weights the model %(model)s has, so its grades cannot be trusted.",
)
PROBE_FAILED = define_message("engine.probe_failed", "The test request to the engine failed (%(kind)s).")
REFUSED_CONNECTION = define_message(
    "engine.refused_connection",
    "%(engine)s refused the connection or did not answer within %(seconds)s s. "
    "Start it, or correct its url in config.toml.",
)
ANSWER_BROKEN_OFF = define_message(
    "engine.answer_broken_off",
    "%(engine)s closed the connection before its answer was complete (%(how)s). Check its log.",
)
OUTPUT_NOT_PARSED = define_message(
    "engine.output_not_parsed",
    "%(engine)s could not read what the model wrote: %(answer)s",
)
OTHER_PROTOCOL = define_message(
    "engine.other_protocol",
    "%(engine)s sent an answer that does not follow its protocol. Check which program answers at its url.",
)
COMPRESSED_ANSWER = define_message(
    "engine.compressed_answer",
    "%(engine)s sent a compressed answer that was not requested. There may be a proxy in front of "
    "it; correct its url in config.toml.",
)
OTHER_CONTENT_TYPE = define_message(
    "engine.other_content_type",
    "%(engine)s answered with the content type %(type)s, which no engine sends. There may be a proxy "
    "in front of it; correct its url in config.toml.",
)
NO_ROOM = define_message("engine.no_room", "%(engine)s is at capacity and refused the request: %(answer)s")
STILL_NO_ROOM = define_message(
    "engine.still_no_room",
    "%(problem)s The request was retried for %(seconds)s s. Reduce the slots of the machine, or "
    "allow more parallel requests on the server.",
)
PROXY_ANSWERED = define_message(
    "engine.proxy_answered",
    "A proxy answered because %(engine)s does not: %(answer)s. Start the engine, or correct its url "
    "in config.toml.",
)
REDIRECTED = define_message(
    "engine.redirected",
    "%(engine)s redirects to another address (HTTP status %(status)s). Correct its url in config.toml.",
)
REFUSED_ACCESS = define_message(
    "engine.refused_access",
    "%(engine)s refused access with HTTP status %(status)s. Check the engine's API key.",
)
PROMPT_TOO_LONG = define_message(
    "engine.prompt_too_long", "The prompt exceeds the model's context: %(answer)s"
)
ANSWERED_STATUS = define_message(
    "engine.answered_status",
    "%(engine)s answered with HTTP status %(status)s: %(answer)s. Check its log.",
)
NO_REASON = define_message("engine.no_reason", "no reason given")
ANSWERED_ERROR = define_message(
    "engine.answered_error", "%(engine)s answered with an error: %(answer)s. Check its log."
)
ENGINE_LEFT = define_message("engine.left", "The run was canceled; the connection to %(engine)s was closed.")
NOT_FINISHED = define_message(
    "engine.not_finished", "%(engine)s did not finish within the %(seconds)s s that this job has."
)
SENT_NOTHING = define_message(
    "engine.sent_nothing", "%(engine)s timed out: it sent nothing for %(seconds)s s."
)
NO_TIME_LEFT = define_message(
    "engine.no_time_left", "The time limit of this job passed before it reached the engine."
)
NO_PROMPT = define_message("engine.no_prompt", "The job has no prompt, so no request was sent to a model.")
NO_CHATS = define_message(
    "engine.no_chats", "%(engine)s has no endpoint for chat completions. Correct its url in config.toml."
)
NO_CHATS_V1 = define_message(
    "engine.no_chats_v1",
    "%(engine)s has no endpoint for chat completions. Its url in config.toml should end in /v1.",
)
OLLAMA_MODEL_MISSING = define_message(
    "ollama.model_missing",
    "%(engine)s does not have the model %(model)s. Run on that machine: ollama pull %(model)s",
)
OLLAMA_NO_ROOM_TO_REPAIR = define_message(
    "ollama.no_room_to_repair",
    "The first answer was invalid, and the context of %(tokens)s tokens is too small for a retry. "
    "Increase engines.ollama.num_ctx or shorten the submission.",
)
OLLAMA_PROMPT_CUT = define_message(
    "ollama.prompt_cut",
    "The prompt exceeds the context of %(tokens)s tokens, so the engine truncated it. Increase "
    "engines.ollama.num_ctx or shorten the submission.",
)
OPENAI_MODEL_MISSING = define_message(
    "openai.model_missing",
    "%(engine)s does not have the model %(model)s. Download the model there (for mlx_lm.server: hf "
    "download %(model)s), or correct the model in config.toml.",
)
OPENAI_MODEL_MISSING_OF = define_message(
    "openai.model_missing_of",
    "%(engine)s does not have the model %(model)s. It has %(known)s. Download the model there (for "
    "mlx_lm.server: hf download %(model)s), or correct the model in config.toml.",
)
OPENAI_OTHER_MODEL = define_message(
    "openai.other_model",
    "%(engine)s answered for the model %(model)s as %(answered)s, and before as %(known)s. Check which model "
    "the server has loaded.",
)
THREAD_DIED = define_message(
    "openai.thread_died",
    "%(engine)s answers, but its generation thread has stopped (according to /health). Restart "
    "mlx_lm.server.",
)
ENGINE_CLOSED = define_message("engine.closed", "The engine was closed.")

TEXT_TOO_LONG = define_message(
    "output.text_too_long", "The model wrote more than %(bytes)s bytes; the answer was discarded."
)
TOO_MANY_TOKENS = define_message(
    "output.too_many_tokens",
    "The model exceeded its limit of %(tokens)s tokens; the answer was discarded. Check whether the "
    "server applies its token limit.",
)
ONLY_WHITE_SPACE = define_message(
    "output.only_white_space", "The model wrote only white space; the answer was discarded."
)
ONE_TOKEN_REPEATED = define_message(
    "output.one_token_repeated", "The model wrote the same token again and again, so %(engine)s stopped it."
)
SENT_TOO_MUCH = define_message(
    "output.sent_too_much", "%(engine)s sent more than %(bytes)s bytes for one answer."
)
NO_WORD_BEFORE_LIMIT = define_message(
    "output.no_word_before_limit", "The model reached its token limit before it wrote any text."
)
WROTE_NOTHING = define_message("output.wrote_nothing", "%(engine)s returned an empty answer.")
MODEL_WROTE_NOTHING = define_message("output.model_wrote_nothing", "The model returned an empty answer.")
