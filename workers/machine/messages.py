"""Messages of machines: flags of the stages, failures of runs, reasons of open circuits.

The web app loads this module by the entry point `machine` of `grader.messages`, and nothing else of machines.
"""

from __future__ import annotations

from grading.domain.messages import define_message, define_plural

PROMPT_LEAKED = define_message(
    "stage.prompt_leaked",
    "The model repeated words of its instructions, as it may when a hand-in asks for them. "
    "Read the texts before you release them.",
)
ANSWER_SHORTENED = define_message(
    "stage.answer_shortened", "The model came near the most it may write, so some of its texts end early."
)
QUOTES_NOT_FOUND = define_plural(
    "stage.quotes_not_found",
    "One quote was not found in the hand-in and left out.",
    "%(count)s quotes were not found in the hand-in and left out.",
)
INVISIBLE_CHARACTERS = define_plural(
    "stage.invisible_characters",
    "One invisible character was left out of what the model read; they can hide words or change their order.",
    "%(count)s invisible characters were left out of what the model read; they can hide words or change "
    "their order.",
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
    "the middle of %(count)s long text was left out",
    "the middle of %(count)s long texts was left out",
)
LONG_CODE_CUT = define_plural(
    "stage.shortened.long_code",
    "the middle of %(count)s long piece of code was left out",
    "the middle of %(count)s long pieces of code was left out",
)
PIECES_LEFT_OUT = define_plural(
    "stage.shortened.pieces",
    "%(count)s piece in the middle of the hand-in was left out",
    "%(count)s pieces in the middle of the hand-in were left out",
)
EXAMPLES_LEFT_OUT = define_plural(
    "stage.shortened.examples",
    "%(count)s example of corrections was left out",
    "%(count)s examples of corrections were left out",
)
SOLUTION_CUT = define_message("stage.shortened.solution", "the middle of the solution was left out")
STARTER_CUT = define_message("stage.shortened.starter", "the middle of the starter was left out")
TASK_CUT = define_message("stage.shortened.task", "the middle of the task was left out")

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
