"""Messages of machines: flags of the stages, failures of runs, reasons of open circuits.

The web app loads this module by the entry point `machine` of `grader.messages`, and nothing else of machines.
"""

from __future__ import annotations

from grading.domain.messages import define_message, define_plural

PROMPT_LEAKED = define_message(
    "stage.prompt_leaked",
    "The model repeated words of its instructions, as it may when a submission asks for them. "
    "Read the texts before you release them.",
)
ANSWER_SHORTENED = define_message(
    "stage.answer_shortened", "The model came near the most it may write, so some of its texts end early."
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

SHORTENED = define_message("stage.shortened", "To fit the model's context, %(clauses)s.")
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
    "the middle of %(count)s long piece of code omitted",
    "the middle of %(count)s long pieces of code omitted",
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
    "run.exhausted", "This work was begun three times and never came to an end; it is not begun again."
)
STAGE_NOT_HERE = define_message(
    "run.stage_not_here",
    "The machine that got this work does not do this stage; its configuration differs from the server's.",
)
OTHER_VERSION = define_message(
    "run.other_version",
    "The machine that got this work does not understand it; it runs another version than the server.",
)
UNEXPECTED_FAILURE = define_message(
    "run.unexpected_failure", "The engine failed in an unexpected way (%(kind)s)."
)
NO_SUCH_STAGE = define_message(
    "run.no_such_stage", "There is no stage named %(stage)s; this machine knows %(known)s."
)
TASK_TOO_LONG = define_message(
    "run.task_too_long",
    "The task and the rubric alone fill the model's context. Shorten them or raise the engine's context.",
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

PROBE_FAILED = define_message("engine.probe_failed", "Asking it for a word failed (%(kind)s).")
REFUSED_CONNECTION = define_message(
    "engine.refused_connection",
    "%(engine)s refused the connection or did not answer within %(seconds)s s. "
    "Start it, or correct its url in config.toml.",
)
ANSWER_BROKEN_OFF = define_message(
    "engine.answer_broken_off", "%(engine)s broke off the answer (%(how)s). Look at its log."
)
OTHER_PROTOCOL = define_message(
    "engine.other_protocol",
    "%(engine)s sent something that is not part of its protocol. Look what answers at that url.",
)
COMPRESSED_ANSWER = define_message(
    "engine.compressed_answer",
    "%(engine)s sent a compressed answer, which was not asked for. A proxy may stand before it; "
    "correct its url in config.toml.",
)
OTHER_CONTENT_TYPE = define_message(
    "engine.other_content_type",
    "%(engine)s answered with %(type)s, which no engine sends. "
    "A proxy may stand before it; correct its url in config.toml.",
)
NO_ROOM = define_message("engine.no_room", "%(engine)s has no room for another request: %(answer)s")
STILL_NO_ROOM = define_message(
    "engine.still_no_room",
    "%(problem)s It was asked again for %(seconds)s s. Give the machine fewer slots, "
    "or let the server take more at once.",
)
PROXY_ANSWERED = define_message(
    "engine.proxy_answered",
    "A proxy answered for %(engine)s, which does not answer itself: %(answer)s. "
    "Start the engine, or correct its url in config.toml.",
)
REDIRECTED = define_message(
    "engine.redirected",
    "%(engine)s sends on to another address (%(status)s). Correct its url in config.toml.",
)
REFUSED_ACCESS = define_message(
    "engine.refused_access",
    "%(engine)s refused access with status %(status)s. Check the engine's API key.",
)
PROMPT_TOO_LONG = define_message(
    "engine.prompt_too_long", "The prompt does not fit the model's context: %(answer)s"
)
ANSWERED_STATUS = define_message(
    "engine.answered_status",
    "%(engine)s answered with status %(status)s: %(answer)s. Look at its log.",
)
NO_REASON = define_message("engine.no_reason", "no reason given")
ANSWERED_ERROR = define_message(
    "engine.answered_error", "%(engine)s answered with an error: %(answer)s. Look at its log."
)
ENGINE_LEFT = define_message("engine.left", "Nobody waits for this run any more; %(engine)s was left.")
NOT_FINISHED = define_message(
    "engine.not_finished", "%(engine)s did not finish within the %(seconds)s s of this job."
)
SENT_NOTHING = define_message("engine.sent_nothing", "%(engine)s sent nothing for %(seconds)s s.")
NO_TIME_LEFT = define_message(
    "engine.no_time_left", "No time was left for this job before it reached the engine."
)
NO_PROMPT = define_message("engine.no_prompt", "The job has no prompt, so no model was asked.")
NO_CHATS = define_message(
    "engine.no_chats", "%(engine)s has no page for chats. Correct its url in config.toml."
)
NO_CHATS_V1 = define_message(
    "engine.no_chats_v1",
    "%(engine)s has no page for chats. Its url in config.toml should end in /v1.",
)
OLLAMA_MODEL_MISSING = define_message(
    "ollama.model_missing",
    "%(engine)s does not have the model %(model)s. Run there: ollama pull %(model)s",
)
OLLAMA_NO_ROOM_TO_REPAIR = define_message(
    "ollama.no_room_to_repair",
    "The first answer could not be used, and the context of %(tokens)s tokens has no room to ask for "
    "another. Raise engines.ollama.num_ctx or shorten the submission.",
)
OLLAMA_PROMPT_CUT = define_message(
    "ollama.prompt_cut",
    "The prompt does not fit the context of %(tokens)s tokens, so the engine cut it. "
    "Raise engines.ollama.num_ctx or shorten the submission.",
)
OPENAI_MODEL_MISSING = define_message(
    "openai.model_missing",
    "%(engine)s does not have the model %(model)s. Load it there "
    "(for mlx_lm.server: hf download %(model)s), or correct the model in config.toml.",
)
OPENAI_MODEL_MISSING_OF = define_message(
    "openai.model_missing_of",
    "%(engine)s does not have the model %(model)s. It has %(known)s. Load it there "
    "(for mlx_lm.server: hf download %(model)s), or correct the model in config.toml.",
)
THREAD_DIED = define_message(
    "openai.thread_died",
    "%(engine)s answers, but the thread that generates in it died (its /health says so). "
    "Restart mlx_lm.server.",
)
ENGINE_CLOSED = define_message("engine.closed", "The engine was closed.")

TEXT_TOO_LONG = define_message(
    "output.text_too_long", "The model wrote more than %(bytes)s bytes; the answer was dropped."
)
TOO_MANY_TOKENS = define_message(
    "output.too_many_tokens",
    "The model went on after the %(tokens)s tokens it was allowed; the answer was dropped. "
    "Look whether the server honours its token limit.",
)
ONLY_WHITE_SPACE = define_message(
    "output.only_white_space", "The model wrote nothing but white space any more; the answer was dropped."
)
SENT_TOO_MUCH = define_message(
    "output.sent_too_much", "%(engine)s sent more than %(bytes)s bytes for one answer."
)
NO_WORD_BEFORE_LIMIT = define_message(
    "output.no_word_before_limit", "The model reached its token limit before it wrote a word."
)
WROTE_NOTHING = define_message("output.wrote_nothing", "%(engine)s finished without writing anything.")
MODEL_WROTE_NOTHING = define_message("output.model_wrote_nothing", "The model returned an empty answer.")
