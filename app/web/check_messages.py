"""What checks and flags say of a work, which they write in English, in the reader's language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from app.web.i18n import current, gettext, render_message
from app.web.i18n import later as N_
from grading.domain.messages import Message

SENTENCES: tuple[str, ...] = (
    # of machines, why they listen to their queues
    N_("it has not looked yet"),
    N_("a spare that has just started leaves work to others"),
    N_("it was just taken in again and looks at the others first"),
    N_("takes only what is sent to it by name"),
    N_("can do nothing now"),
    N_("all slots are in use"),
    N_("others are done with it earlier"),
    N_("nothing waits"),
    N_("nothing"),
    N_("it takes %(p1)s"),
    N_("%(p1)s comes soon"),
    # of a rubric that cannot be taken
    N_("give either deduct or cap"),
    N_("each and partly go with deduct only"),
    N_("names a criterion twice"),
    N_("needs at least one criterion that is not a bonus"),
    N_("bonus_at_most goes with bonus criteria; mark one with bonus = true"),
    N_("adjustment '%(p1)s' names no criterion of this rubric: %(p2)s"),
    N_("adjustment '%(p1)s' concerns bonus criteria and others; make two of it"),
    N_(
        "adjustments '%(p1)s' and '%(p2)s' share some criteria, but neither concerns all of the other's; "
        "name the same ones, or separate ones"
    ),
    # of flags
    N_("None of the %(p1)s with the student's code was run before it was handed in."),
    N_("Nothing was added to the starter."),
    N_("What was handed in is empty."),
    N_("What was handed in holds only brackets, placeholders or lines such as a name."),
    N_("The code does not parse at %(p1)s of %(p2)s."),
    N_("The code may not parse at %(p1)s of %(p2)s; dialects of SQL differ."),
    N_("There is more code than is checked (1 MB); checks on code saw only a part of it."),
    N_("%(p1)s was stopped when it was run: %(p2)s. What was not reached does not count as passed."),
    N_("%(p1)s of %(p2)s took too long when it was run, and was stopped."),
    N_("Packages that the work asks for are not installed where it is run: %(p1)s."),
    N_(
        "The work asks for packages that are not installed here, and that the assignment does not use: "
        "%(p1)s. What fails for want of them counts as an error of the work."
    ),
    N_("The work was not run, and its behaviour is not graded. %(p1)s"),
    N_("There is no sandbox on this server."),
    N_("The folder “%(p1)s” is not there when the work is run; it ran in its own instead."),
    N_("An output may list many answers instead of one, and does not count: %(p1)s."),
    N_("the output has %(p1)s lines, where no more than %(p2)s may stand beside the answer"),
    N_("the output has %(p1)s numbers, where no more than %(p2)s may stand beside the answer"),
    N_("the output has the words of one answer in %(p1)s orders"),
    N_("the output has %(p1)s more lines like one that was asked for, with other numbers"),
    N_("output of %(p1)s: %(p2)s"),
    N_("output: %(p1)s"),
    N_("'%(p1)s' could not be judged; a person must."),
    N_(
        "Whether '%(p1)s' applies could not be decided: %(p2)s. Only what is certain is taken until a person "
        "decides."
    ),
    N_(
        "Whether '%(p1)s' applies could not be decided. Only what is certain is taken until a person decides."
    ),
    N_("there is hidden text: %(p1)s"),
    N_("many zero-width characters"),
    N_("characters that change the reading direction hide what is written here"),
    N_("a long run of encoded characters (%(p1)s) that a reader cannot check"),
    N_("%(p1)s (in a file's name)"),
    N_("text that tells the grader to ignore its instructions: %(p1)s"),
    N_("text that asks for points: %(p1)s"),
    N_("text that gives the grader another role: %(p1)s"),
    N_("text that speaks to a grading machine: %(p1)s"),
    N_("text that says the grade is already settled: %(p1)s"),
    N_("text that brings grading rules of its own: %(p1)s"),
    N_("Everything has its highest level, and no check confirms any of it. A person must look."),
    N_("%(p1)s with an error."),
    # of the whole report
    N_(
        "No language model was used: points and words come from fixed rules that look at the code, its "
        "outputs and the text."
    ),
    N_(
        "Written by language models (%(p1)s) on the school's own machines. Points are computed from the "
        "rubric's levels and checks; a person can change every one of them."
    ),
    N_("No part of this report could be written."),
    # of checks
    N_("nothing was added here"),
    N_("nothing was added or run here"),
    N_("no code was added here"),
    N_("needs at least %(p1)s of your own code; there are %(p2)s"),
    N_("needs at least %(p1)s of your own code; there is %(p2)s"),
    N_("no comment line matches %(p1)s"),
    N_("there is no definition of your own here"),
    N_("there is no function of your own here"),
    N_("there is no method of your own here"),
    N_("there is no class of your own here"),
    N_("there are no names of your own here"),
    N_("names are written as asked"),
    N_("definitions have a description"),
    N_("functions have a description"),
    N_("methods have a description"),
    N_("classes have a description"),
    N_("functions of at most %(p1)s"),
    N_("%(p1)s of %(p2)s with a description; %(p3)s has none"),
    N_("%(p1)s of %(p2)s with a description"),
    N_("%(p1)s of %(p2)s with at most %(p3)s; %(p4)s has %(p5)s"),
    N_("%(p1)s of %(p2)s with at most %(p3)s"),
    N_("%(p1)s of %(p2)s written as asked; %(p3)s is not %(p4)s"),
    N_("%(p1)s of %(p2)s written as asked"),
    N_("%(p1)s; at least %(p2)s are asked for"),
    N_("%(p1)s; at least %(p2)s is asked for"),
    N_("%(p1)s; at most %(p2)s are allowed"),
    N_("%(p1)s; at most %(p2)s is allowed"),
    N_("no answer was written here"),
    N_("there is nothing to read"),
    N_("there is no code here that can be run"),
    N_("none of the described ways was found"),
    N_("none of %(p1)s was found"),
    N_("no errors"),
    N_("no errors in your code"),
    N_("no placeholder is left"),
    N_("all cells were run"),
    N_("outputs are shown"),
    N_("runs from start to end"),
    N_("the numbers are right"),
    N_("the values are right"),
    N_("the outputs are right"),
    N_("the output shows what was asked for"),
    N_("the output does not show %(p1)s"),
    N_("the code has what is asked for"),
    N_("does not use %(p1)s"),
    N_("uses %(p1)s, which is not allowed here"),
    N_("has %(p1)s, which should not be there"),
    N_("has no %(p1)s"),
    N_("has %(p1)s"),
    N_("%(p1)s; the first that failed: %(p2)s"),
    N_("%(p1)s, %(p2)s of those that failed is hidden"),
    N_("%(p1)s, %(p2)s of those that failed are hidden"),
    N_("%(p1)s of %(p2)s tests passed"),
    N_("%(p1)s of %(p2)s test passed"),
    N_("%(p1)s of %(p2)s values are right"),
    N_("%(p1)s of %(p2)s value is right"),
    N_("%(p1)s of %(p2)s outputs are right"),
    N_("%(p1)s of %(p2)s output is right"),
    N_("%(p1)s of %(p2)s ran without an error; the first that did not %(p3)s"),
    N_("%(p1)s of %(p2)s ran without an error"),
    N_("%(p1)s of %(p2)s found in the outputs"),
    N_("%(p1)s of %(p2)s of your code with an error; the first %(p3)s"),
    N_("%(p1)s of %(p2)s with your code show an output"),
    N_("%(p1)s of %(p2)s with your code show a picture"),
    N_("%(p1)s of %(p2)s with your code were run before the hand-in"),
    N_("%(p1)s of %(p2)s were run before the hand-in"),
    N_("%(p1)s of at least %(p2)s words"),
    N_("%(p1)s of at least %(p2)s"),
    N_("%(p1)s words of at least %(p2)s"),
    N_("%(p1)s still with a placeholder such as “%(p2)s”"),
    N_("does not apply: %(p1)s"),
    N_("the check cannot be run: %(p1)s"),
    N_("the check asks for nothing"),
    N_("there is nothing to compare with"),
    N_("%(p1)s cannot be read as %(p2)s, but as %(p3)s"),
    N_("%(p1)s is in %(p2)s, and the assignment asks for %(p3)s"),
    N_("no test can be used; the instructor was told"),
    N_("there is no expected output to compare with"),
    N_("there is no code in Python or R to run"),
    N_("no heading says where the answer is"),
    N_("no cell or heading matches %(p1)s"),
    N_("no file is named like %(p1)s"),
    N_("the output shows what is asked for"),
    N_("at least %(p1)s words"),
    N_("at least %(p1)s and at most %(p2)s"),
    N_("at least %(p1)s"),
    N_("at most %(p1)s"),
    N_("one of several ways"),
    N_("how it was done"),
    N_("%(p1)s gave %(p2)s, not %(p3)s"),
    N_("%(p1)s raised %(p2)s"),
    N_("%(p1)s and %(p2)s more"),
    N_("%(p1)s: the solution itself does not pass (%(p2)s)"),
    N_("%(p1)s; %(p2)s are missing"),
    N_("%(p1)s; %(p2)s is missing"),
    N_("%(p1)s are missing"),
    N_("%(p1)s is missing"),
    N_("found in %(p1)s"),
    N_("uses %(p1)s"),
    N_("defines %(p1)s"),
    # of what is wrong with a rubric
    N_("is missing"),
    N_("is missing; give it, at_most or both"),
    N_("is less than at_least"),
    N_("cannot be given together with names"),
    N_("can only be given where subclasses are counted"),
    N_("asks for nothing; give %(p1)s"),
    # of what kinds of checks do
    N_("Calls these functions, found in parsed code."),
    N_("Calls none of these functions (1 or 0)."),
    N_("Assigns these variables, columns or functions, found in parsed code."),
    N_("Code without comments matches these regular expressions."),
    N_("Cells with student code show an output."),
    N_("Text outputs match these regular expressions."),
    N_("Numbers in the outputs are close to `values`, or to those of the solution's matching cells."),
    N_("No cell shows an error output and no code fails to parse."),
    N_("Code cells carry an execution count or an output."),
    N_("The student's own prose has at least this many words."),
    N_('No placeholder is left: TODO, FIXME, "your code here", "your answer here", or `extra` patterns.'),
    N_("So many calls, operators, loops or definitions stand on the student's lines."),
    N_("The student's own comments and docstrings."),
    N_("The student's own functions, methods and classes have a description."),
    N_("Functions and methods that the student wrote in are not longer than this."),
    N_("Names that the student gave are written in a style."),
    N_("The work, when run, passes tests."),
    N_("The work runs from its first line to its last without an error."),
    N_("The outputs, when run, equal `text`, or those of the solution's matching cells."),
    N_("After the work ran, these variables have the values that the solution gives them, or `values`."),
    N_("The best of several checks counts."),
    N_("The first rung whose checks are all met gives the credit; none gives `otherwise`."),
    # parts of them
    N_("cannot be read as code"),
    N_("stops with an error (%(p1)s)"),
    N_("stopped with %(p1)s"),
    N_("was not reached"),
    N_("took too long"),
    N_("the work was not run"),
    N_("there are no expected numbers to compare with"),
    N_("scripts carry no outputs"),
    N_("packages or files that the work needs are missing on the server"),
    N_("%(p1)s code cells"),
    N_("%(p1)s code cell"),
    N_("%(p1)s expected numbers"),
    N_("%(p1)s expected number"),
    N_("%(p1)s pieces"),
    N_("%(p1)s piece"),
    N_("%(p1)s scripts"),
    N_("%(p1)s script"),
    N_("%(p1)s places"),
    N_("%(p1)s place"),
    N_("%(p1)s uses of %(p2)s"),
    N_("%(p1)s use of %(p2)s"),
    N_("%(p1)s subclasses of %(p2)s"),
    N_("%(p1)s subclass of %(p2)s"),
    N_("%(p1)s subclasses"),
    N_("%(p1)s subclass"),
    N_("%(p1)s definitions"),
    N_("%(p1)s definition"),
    N_("%(p1)s functions"),
    N_("%(p1)s function"),
    N_("%(p1)s methods"),
    N_("%(p1)s method"),
    N_("%(p1)s classes"),
    N_("%(p1)s class"),
    N_("%(p1)s comments"),
    N_("%(p1)s comment"),
    N_("%(p1)s names"),
    N_("%(p1)s name"),
    N_("%(p1)s loops"),
    N_("%(p1)s loop"),
    N_("%(p1)s conditions"),
    N_("%(p1)s condition"),
    N_("%(p1)s lines"),
    N_("%(p1)s line"),
    N_("%(p1)s cells stop"),
    N_("%(p1)s cell stops"),
    N_("line %(p1)s of cell %(p2)s"),
    N_("line %(p1)s"),
    N_("cell %(p1)s of %(p2)s"),
    N_("cell %(p1)s"),
)
AND = N_("%(p1)s and %(p2)s")
"""Only of values: a sentence that is not known is not shown in two languages."""
"""With %(p1)s where a value stands, the more telling ones first. What is not here is shown as it is."""
LONGEST = 600
"""Characters; a longer one is shown as it is."""
QUOTED = re.compile("“[^“”]*”")
"""What somebody else wrote stays as it is."""
DEEP = 4
"""How often values in values are looked up."""


def said(sentence: str | Message) -> str:
    """A sentence of a check or flag in the reader's language, as far as its words are known."""
    if isinstance(sentence, Message):
        return render_message(sentence) if sentence.code else said(sentence.message)
    language = current()
    return sentence if language == "en" or len(sentence) > LONGEST else _said(language, sentence, DEEP)


@lru_cache(maxsize=4096)
def _said(language: str, sentence: str, deep: int) -> str:
    """`language` is the reader's; it keeps the answers apart. Values are looked up, too, `deep` times."""
    found = gettext(sentence) if sentence in SENTENCES else sentence
    if found != sentence or not deep or QUOTED.fullmatch(sentence):
        return found
    for values, text in _fitting(sentence, inside=deep < DEEP):
        return gettext(text) % {name: _said(language, one, deep - 1) for name, one in values.items()}
    return sentence


def _fitting(sentence: str, *, inside: bool) -> Iterator[tuple[dict[str, str], str]]:
    for pattern, text in _patterns():
        if (inside or text is not AND) and (match := pattern.fullmatch(sentence)):
            yield match.groupdict(), text


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((_pattern(text), text) for text in (*SENTENCES, AND) if "%(p1)s" in text)


def _pattern(text: str) -> re.Pattern[str]:
    """A number stands before a counted word, anything else elsewhere."""
    parts = re.split(r"%\((p\d)\)s", text)
    counted = re.fullmatch(r"%\(p1\)s [a-z ]+", text) is not None and not text.endswith("missing")
    value = r"\d+" if counted else ".+?"
    return re.compile(
        "".join(f"(?P<{part}>{value})" if n % 2 else re.escape(part) for n, part in enumerate(parts)),
        re.DOTALL,
    )
