"""Requests and results of executions, as frozen values that cross process borders as JSON.

Whatever comes out of a sandbox was written by a process that ran a stranger's code: it is data to compare,
never something to believe about itself. Expected values therefore never go into the sandbox of the work.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grading.config.settings import Limits
from grading.domain.base_value import Value
from grading.domain.document import Output
from grading.domain.messages import Message, Params, define_message, verbatim

CodeLanguage = Literal["python", "r"]

# Why a run ended, without a full stop because other messages hold them; prompts read the English texts.
MEMORY = define_message("run.memory", "It used more than the %(size)s MiB of memory that it may")
TOO_LONG = define_message("run.too_long", "It ran longer than the %(seconds)s s that it may take in all")
PROCESSES = define_message(
    "run.processes", "It started more than the %(count)s processes and threads that it may"
)
SOCKETS = define_message("run.sockets", "It opened more than the %(count)s sockets that it may")
FILES = define_message("run.files", "It made more than 20,000 files")
FILE_SIZE = define_message("run.file_size", "It wrote a file larger than the %(size)s MiB that it may")
OUTPUT = define_message("run.output", "It gave out more than it may")
NO_HEARTBEAT = define_message("run.no_heartbeat", "It gave no heartbeat for %(seconds)s s")
NOT_READING = define_message("run.not_reading", "It did not read what it was sent")
ENDED_ITSELF = define_message("run.ended_itself", "It ended itself before its time")
ENDED_EARLY = define_message("run.ended_early", "The program ended itself before it was through")
EXIT_CODE = define_message("run.exit_code", "It ended itself with exit code %(number)s")
SIGNAL = define_message("run.signal", "It was ended by a signal of its own making (%(name)s)")
SENTENCE = define_message("run.sentence", "%(reason)s.")


class Code(Value):
    """One piece of code that runs as a whole: a notebook's cell, a chunk, a script."""

    number: int
    source: str
    first_line: int = 1


class Work(Value):
    """The document that is run; without cells, an empty one, in which expressions can be evaluated."""

    document: str = ""
    """Its path in the submission."""
    module: str = ""
    """What test files import it by: the name that solution and starter have, whatever the student's is."""
    kind: Literal["notebook", "script"] = "script"
    language: CodeLanguage
    prelude: str = ""
    """The instructor's code that runs before it."""
    cells: tuple[Code, ...] = ()


class Expression(Value):
    """Code with a value, evaluated after the work ran, each in a process of its own."""

    code: str
    seconds: float = Field(default=5.0, gt=0)


class TestFile(Value):
    """A file of tests by the instructor: unittest or pytest, or testthat."""

    __test__ = False  # not a test of pytest's

    path: str
    source: str
    seconds: float = Field(default=5.0, gt=0)
    """For each test in it."""


class Request(Value):
    """All that decides the outcome of an execution, so that its content is the key of the cache.

    The order is: the work from its first line to its last, variables, expressions, test files.
    """

    work: Work
    files: dict[str, str] = Field(default_factory=dict)
    """Path -> SHA-256 of what lies beside it: the assignment's data, other files of the submission."""
    as_main: bool = True
    """Whether a script runs as a program (`__main__`) or is imported."""
    variables: tuple[str, ...] = ()
    expressions: tuple[Expression, ...] = ()
    tests: tuple[TestFile, ...] = ()
    limits: Limits = Limits()


class Shape(Value):
    """A value of Python or R in a form that can be compared.

    `kind` says which of the fields count: `text` for truth ("true", "false"), number (as the language prints
    it in full: "6", "0.1", "nan", "1+2j") and text; `items` for list, set and, beside `keys`, map; `names`
    and `columns` for a table (one tuple of cells a column) and `names` for a named list or vector; `text`
    alone, the printed form, for anything else.
    """

    kind: Literal["nothing", "truth", "number", "text", "list", "set", "map", "table", "picture", "other"]
    type: str = ""
    """The language's own name: `tuple`, `numpy.float64`, `data.frame`."""
    text: str = ""
    items: tuple[Shape, ...] = ()
    keys: tuple[Shape, ...] = ()
    names: tuple[str, ...] = ()
    columns: tuple[tuple[float | bool | str | None, ...], ...] = ()
    cut: bool = False
    """It was larger than what is sent; only a part is here."""


class Answer(Value):
    """What an expression or a variable gave."""

    state: Literal["value", "error", "too long", "missing", "not reached"]
    value: Shape | None = None
    error: str = ""
    """One line, such as `ZeroDivisionError: division by zero`."""
    printed: str = ""


class Played(Value):
    """What became of one cell or script."""

    number: int
    state: Literal["ran", "failed", "too long", "not reached"]
    outputs: tuple[Output, ...] = ()
    error: str = ""
    """One line."""
    line: int | None = None
    """Where it failed, in the cell."""
    seconds: float = 0.0


class Tested(Value):
    """What became of one test of a test file, as the process that holds the tests says."""

    file: str
    name: str
    state: Literal["passed", "failed", "error", "too long", "skipped", "not reached"]
    message: str = ""
    """Why it failed; a few lines at most."""


End = Literal["finished", "too long", "memory", "output", "processes", "left", "not run"]
"""Why an execution ended. `left`: the program ended itself, or was killed by its own doing. `not run`:
there is no sandbox here, or it could not be used; nobody's work is to blame."""


def _empty(value: object) -> bool:
    return not value


class Ended(Value):
    """How a run ended."""

    end: End
    reason: str = ""
    """A sentence for people, empty when it finished. In English."""
    code: str = Field(default="", exclude_if=_empty)
    """Which message it is, without its full stop; empty where an older version wrote it."""
    params: Params = Field(default_factory=dict, exclude_if=_empty)

    @property
    def clause(self) -> Message:
        """The reason without its full stop, to be rendered in a language."""
        return Message(code=self.code, params=self.params, message=self.reason.rstrip("."))

    @property
    def coded(self) -> Message:
        """The reason, to be rendered in a language; as it is stored where it has no code."""
        return SENTENCE(reason=self.clause) if self.code else verbatim(self.reason)


class Execution(Ended):
    """Result of running one request in a sandbox."""

    cells: tuple[Played, ...] = ()
    variables: dict[str, Answer] = Field(default_factory=dict)
    answers: tuple[Answer, ...] = ()
    """In the order of the request's expressions."""
    tests: tuple[Tested, ...] = ()
    missing: tuple[str, ...] = ()
    """Packages that the work asked for and the sandbox does not have."""
    seconds: float = 0.0
    sandbox: str = ""
    image: str = ""
    """Digest of the interpreter, its packages and our drivers: what the same request runs in."""
