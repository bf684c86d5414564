"""A school to be looked at: a course with a class in every state, for pictures of the pages; by one seed."""

# ruff: noqa: E501  # what people wrote stands in one line each

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from grading.broker.heartbeats import Lease
from grading.checks.kinds.code import Uses
from grading.checks.manipulation import phrases
from grading.checks.precheck import PrecheckOutcome
from grading.config.settings import Config
from grading.documents import UploadedFile, read
from grading.documents.notebook import DAMAGED
from grading.domain.document import Location
from grading.domain.errors import EngineStalled, for_student
from grading.domain.evidence import CheckOutcome, Flag, TestOutcome
from grading.domain.jobs import Finding, Judgement, SentPrompt, Suggestion
from grading.domain.report import CriterionGrade, Report
from grading.domain.round_states import RoundState
from grading.domain.rubric import Criterion, Rubric
from grading.domain.stages import AnalysisOutput, FeedbackOutput
from grading.domain.token_use import Use, UseKey
from grading.execution.display import ShownDocument, ShownExecution
from grading.execution.values import Played
from grading.scoring.combine import BY_MODELS
from grading.store import tables
from grading.store.accounts import gateway_use, users
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.database import now
from grading.store.submissions import prechecks
from tests.integration.webapp import School, report

STUDENTS = (
    "Amira Haddad", "Jonas Weber", "Lena Hoffmann", "Mateo Rossi", "Sofia Novak", "Elif Yılmaz", "Noah Fischer",
    "Chiara Romano", "Yusuf Demir", "Hannah Schulz", "Luca Bianchi", "Mila Petrović", "Felix Wagner", "Aylin Kaya",
    "Paul Becker", "Nina Kowalska", "Omar Farouk", "Clara Neumann", "Tim Schäfer", "Ines Moreau", "David Braun",
    "Zoe Papadopoulos", "Max Richter", "Leila Karimi", "Anton Vogel", "Maria Santos", "Erik Lindqvist", "Julia Krüger",
    "Samuel Okafor", "Emma Zimmermann",
)  # fmt: skip
TITLE = "Homework 3: What sells in a café"
TASK = """# What sells in a café

The file `sales.csv` has one line for each thing sold in a year: day, hour, product, price.

1. Load it and say how many lines it has and what is missing.
2. Show the sales of each month in a plot.
3. Which product would you take off the menu? Say why, with numbers.
4. Reflect: what surprised you, and what would you ask the owner?
"""
WRITTEN = """from collections import Counter


def best(products):
    \"\"\"The product that is sold most often.\"\"\"
    counted = Counter(products)
    return min(counted, key=counted.get)  # TODO: for a tie, the first one
"""
CRITERIA = (
    ("load", "Loads the data and looks at it first", "analysis", 4, None),
    ("clean", "Handles missing values", "analysis", 4, "missing values"),
    ("plot", "Shows sales by month in a readable plot", "analysis", 5, "by month"),
    ("answer", "Answers with numbers from the data", "analysis", 4, "products|answer"),
    ("think", "Reflects on what surprised them", "feedback", 3, "surprised"),
)
CHECKS = {
    "load": (Uses(id="1", label="reads sales.csv", all_of=("read_csv",)),),
    "clean": (Uses(id="2", label="leaves out or fills what is missing", any_of=("dropna", "fillna")),),
}
LEVELS = ("missing", "begun", "partly", "mostly", "fully")
REASONS = {
    "load": ("The file is read with pandas and looked at with head() and info().", "The file is read, but never looked at."),
    "clean": ("Rows without a price are counted and left out, and it is said why.", "112 rows without a price are summed up as zero."),
    "plot": ("One bar for each month, with a title and labels.", "There is a plot, but its axes bear no names."),
    "answer": ("Iced tea is named, with 214 sold in a year.", "An answer is given, but no number supports it."),
    "think": ("The rainy June is compared with July, and a question follows.", "The reflection repeats the task in other words."),
}  # fmt: skip
CELLS = (
    ("markdown", "# What sells in a café\n\nMatriculation 31415. I first look at the data, then at the months."),
    ("code", "import pandas as pd\n\nsales = pd.read_csv('sales.csv', parse_dates=['day'])\nsales.info()"),
    ("code", "# Missing values\nmissing = sales['price'].isna().sum()\nprint(f'{missing} rows have no price')\nsales = sales.dropna(subset=['price'])"),
    ("code", "# Sales by month\nmonthly = sales.groupby(sales['day'].dt.month)['price'].sum()\nmonthly.plot.bar()"),
    ("code", "# Best and worst products\nsold = sales['product'].value_counts()\nprint(sold.tail(3))"),
    ("markdown", "## Answer, and what surprised me\n\nI would take iced tea off the menu: 214 sold in a year.\n\nWhat surprised me is that June sells less than May. "
     "Was it the weather? I would ask the owner whether the terrace was closed."),
)  # fmt: skip
HANDLED = (
    "sales = sales.dropna(subset=['price'])",
    "sales = sales[sales['price'].notna()]",
    "sales['price'] = sales['price'].fillna(0)",
    "sales['price'] = sales['price'].fillna(sales['price'].mean())",
)
TOGETHER = {6: 5, 9: 5, 14: 13}
"""Student -> whose code they have."""
OUTPUTS = {
    1: "RangeIndex: 48211 entries, 0 to 48210\nData columns (total 4 columns):\n day      48211 non-null  datetime64[ns]\n price    48099 non-null  float64\n",
    2: "112 rows have no price\n",
    4: "Iced tea          214\nRhubarb cake      340\nChai              398\n",
}  # fmt: skip


class ShowSchool(School):
    """The school of the tests with a class that has been at work."""

    def __init__(self, place: Path) -> None:
        receivers = [
            {"name": name, "url": f"https://{name}.school.example/grader-events"}
            for name in ("lms", "archive")
        ]
        super().__init__(place, event_receivers=receivers)
        second = {
            "name": "mac-studio-2",
            "stages": {"second_opinion": {"engine": "rules", "model": "mistral-small3"}},
        }
        config = self.services.config
        machines = [*(one.model_dump() for one in config.machines), second]
        self.services = replace(
            self.services, config=Config.model_validate({**dict(config), "machines": machines})
        )
        self.chance = random.Random(11)
        self.made: dict[str, str] = {}
        """What it is an example of -> id of the submission."""
        self.trust = 0
        """The assignment with something to see on the pages of trust, once there is one."""
        self._course()
        self._class()
        self._code()
        self._around()

    def _course(self) -> None:
        criteria = tuple(
            Criterion(id=i, title=title, stage=stage, points=points, levels=LEVELS, where=where, checks=CHECKS.get(i, ()))
            for i, title, stage, points, where in CRITERIA
        )  # fmt: skip
        with self.store.write() as session:
            course = versions.find_or_create_course(session, "ba")
            course.title = "Business Analytics 1"
            new = NewVersion(
                "hw3", TITLE, "python", "after_review", "d-hw3", Rubric(criteria=criteria), task=TASK
            )
            row, version, _ = versions.import_version(session, "ba", new)
            documents = [
                one.model_dump(mode="json")
                for one in read([UploadedFile("cafe.ipynb", notebook())]).documents
            ]
            version.solution = documents
            row.due_at = now(session) + timedelta(days=2, hours=5)
            row.max_submissions = 3
            self.shown = row.id
            first = session.get_one(tables.Assignment, self.assignment)
            first.title, first.due_at = "Homework 1: Tables and types", now(session) - timedelta(days=19)
            second = session.get_one(tables.Assignment, self.quick)
            second.title, second.due_at = "Homework 2: Joining tables", now(session) - timedelta(days=5)
            for who, name in (
                ("teacher", "Dr. Karin Albrecht"),
                ("grader", "Ben Adler"),
                ("anna", "Anna Lindner"),
                ("admin", "Administrator"),
            ):
                session.get_one(tables.User, self.users[who]).name = name  # fmt: skip

    def _class(self) -> None:
        for number, name in enumerate(STUDENTS):
            login = f"s{3100 + 7 * number}"
            with self.store.write() as session:
                user = users.create_user(session, login, name=name, email=f"{login}@school.example")
                users.enrol(session, user.id, self.course, "student")
                self.users[login] = user.id
            submission = self.submit(login, self.shown, notebook(number), "cafe.ipynb")
            self._happened(submission, number)
        mine = self.submit("anna", self.shown, notebook(), "cafe.ipynb")
        self.grade(mine, a_report((4, 3, 3, 4, 3), self.chance), released=True)
        self.ran(mine, "analysis", SentPrompt(system="You review homework.", user=TASK))
        self.made["result"] = mine
        for title, when in ((self.assignment, 21), (self.quick, 6)):
            old = self.submit("anna", title)
            self.grade(old, report(), released=True)
            self.moved_back(old, timedelta(days=when))

    def _code(self) -> None:
        """Anna writes homework 2 in the browser, and one of its tests fails yet."""
        missed = TestOutcome(
            name="a product that nobody bought",
            passed=False,
            input="best(['tea', 'cake', 'tea'])",
            got="'cake'",
            expected="'tea'",
            show="everything",
        )
        passed = TestOutcome(name="one product", passed=True, input="best(['tea'])")
        found = CheckOutcome(
            check="tests", label="finds the product that sells best", earned=0.5, tests=(missed, passed)
        )
        played = ShownDocument(path="main.py", end="finished", cells=(Played(number=1, state="ran"),))
        outcome = PrecheckOutcome(execution=ShownExecution(documents={"main.py": played}), outcomes=(found,))
        with self.store.write() as session:
            assignment = session.get_one(tables.Assignment, self.quick)
            assignment.code_editor = True
            content = read([UploadedFile("main.py", WRITTEN.encode())])
            made = prechecks.create_precheck(session, assignment, self.users["anna"], WRITTEN, content)
            prechecks.save_outcome(session, made, outcome)

    def _happened(self, submission: str, number: int) -> None:
        if number < 20:
            levels = [self.chance.choice((1, 2, 3, 3, 4, 4)) for _ in CRITERIA]
            held = number in (3, 11)
            flags = (
                {
                    "flags": (
                        Flag.of(
                            "manipulation",
                            phrases.POINTS(),
                            hold=True,
                            location=Location(document="cafe.ipynb", cell=6, line=1),
                        ),
                    )
                }
                if held
                else {}
            )
            self.grade(submission, a_report(levels, self.chance, held=held, **flags), released=number % 4 == 0)  # fmt: skip
            self.made.setdefault("held" if held else "graded", submission)
        elif number == 20:
            self.grade(submission, without_feedback(a_report((3, 3, 2, 3, 0), self.chance)))  # fmt: skip
            self._dead(submission, "feedback")
            self.made["partial"] = submission
        elif number == 21:
            self._state(submission, "failed", failure=DAMAGED(name="cafe.ipynb"))
            self.made["failed"] = submission
        elif number < 26:
            self._run(submission, number)
        elif number < 29:
            self._state(submission, "queued")
            self.made["queued"] = submission
        self.moved_back(submission, timedelta(minutes=190 - 6 * number))

    def _dead(self, submission: str, stage: str) -> None:
        with self.store.write() as session:
            round_ = session.query(tables.Round).filter_by(submission_id=submission).one()
            (row,) = (one for one in round_.stages if one.stage == stage)
            row.state, row.tries, row.runs, row.error = "dead", 3, 3, "engine_stalled"
            row.message = EngineStalled.default_message()

    def _state(self, submission: str, state: str, **more: Any) -> None:
        with self.store.write() as session:
            round_ = session.query(tables.Round).filter_by(submission_id=submission).one()
            round_.state = state
            for name, value in more.items():
                setattr(round_, name, value)
            if state == "failed":
                round_.finished_at = now(session)

    def _run(self, submission: str, number: int) -> None:
        stage, machine = (("analysis", "dgx-spark-1"), ("feedback", "mac-studio-1"))[number % 2]
        with self.store.write() as session:
            round_ = session.query(tables.Round).filter_by(submission_id=submission).one()
            round_.state, round_.dispatched_at = "running", now(session)
            for one in round_.stages:
                one.state = "dispatched"
                run = tables.Run(
                    round_id=round_.id,
                    stage=one.stage,
                    attempt=1,
                    state="dispatched",
                    dispatched_at=now(session),
                )
                session.add(run)
                session.flush()
                one.run_id = run.id
                draft = (
                    "You looked at the months one by one, which makes the quiet June visible."
                    if one.stage == "feedback"
                    else None
                )
                lease = Lease(run.id, machine, "p", one.stage, "generating", 140 + 61 * number, 3.0 + number, draft=draft)  # fmt: skip
                if one.stage == stage or number == 22:
                    self.dispatch.held[run.id] = lease
        self.made["running"] = submission

    def moved_back(self, submission: str, back: timedelta) -> None:
        """As if it had been submitted so much earlier."""
        with self.store.write() as session:
            row = session.get_one(tables.Submission, submission)
            row.created_at -= back
            for one in session.query(tables.Round).filter_by(submission_id=submission):
                one.created_at -= back

    def _around(self) -> None:
        """Questions, comments, extensions, messages and tokens."""
        with self.store.write() as session:
            moment = now(session)
            round_ = session.query(tables.Round).filter_by(submission_id=self.made["result"]).one()
            request = tables.RegradeRequest(
                submission_id=self.made["result"], round_id=round_.id, student_id=self.users["anna"],
                course_id=self.course, criterion="plot", created_at=moment - timedelta(hours=3),
                reason="The axes have names in the second plot, cell 4. Could you look again?",
            )  # fmt: skip
            session.add(request)
            extension = tables.Extension(
                assignment_id=self.shown, student_id=self.users["s3107"], due_at=moment + timedelta(days=6),
                by=self.users["teacher"], at=moment, reason="Ill for a week",
            )  # fmt: skip
            session.add(extension)
            for text in ("Label both axes, with units.", "Say how many rows you left out, and why."):
                session.add(
                    tables.SavedComment(course_id=self.course, text=text, by=self.users["teacher"], at=moment)
                )
            for number in range(2):
                session.add(_dead(moment, number))
            self._use_of_models(session)
        self.token("teacher", "read")
        self.token("admin", "admin")

    def _use_of_models(self, session: Session) -> None:
        """What a notebook server asked of the models for a month."""
        made = users.create_token(
            session, self.users["teacher"], "notebook server", ("chat",), timedelta(days=120), 200_000
        )
        today = now(session).date()
        gateway_use.add_use(
            session,
            {
                UseKey(made.id, model, today - timedelta(days=day)): Use(
                    9 + day, 41_000 + 3_100 * day, 12_500 - 300 * day
                )
                for model in ("qwen3-coder:30b", "nomic-embed-text")
                for day in range(0, 28, 3)
            },
        )


def _dead(moment: datetime, number: int) -> tables.Outbox:
    return tables.Outbox(
        kind="to:lms", key=f"graded:{number}", payload={}, created_at=moment - timedelta(days=2),
        not_before=moment, tries=10, done_at=moment, error="The receiver answered 503 Service Unavailable.",
    )  # fmt: skip


def notebook(student: int = 0) -> bytes:
    """What a student submits; each has code of their own, and some wrote theirs together."""
    cells = []
    written = [*CELLS]
    if student:
        written[2] = (
            "code",
            "\n".join((*CELLS[2][1].splitlines()[:3], HANDLED[student % 11 % len(HANDLED)])),
        )
        theirs = own_code(random.Random(TOGETHER.get(student, student)))
        mine = own_code(random.Random(student))
        written.insert(5, ("code", "\n\n".join([*theirs[:3], *mine[3:]])))
    for number, (kind, source) in enumerate(written):
        cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source}
        if kind == "code":
            said = OUTPUTS.get(number)
            outputs = [{"output_type": "stream", "name": "stdout", "text": said}] if said else []
            cell |= {"execution_count": number, "outputs": outputs}
        cells.append(cell)
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}).encode()


def own_code(chance: random.Random) -> list[str]:
    """A few steps with the data that no other student takes in this way."""
    lines = []
    for name in chance.sample(("hours", "weekly", "dear", "cheap", "shares", "rest"), 4):
        by, what = chance.choice(("hour", "product", "weekday", "season")), chance.choice(("price", "amount"))
        how = chance.sample(("mean", "sum", "max", "median", "nunique", "std", "count", "first"), 2)
        then = chance.sample(("head", "nlargest", "rolling", "shift", "clip", "round", "tail", "diff"), 2)
        n = chance.sample(range(2, 30), 3)
        lines.append(
            f"{name} = sales[sales['{what}'] > {n[0]}].groupby('{by}')['{what}'].{how[0]}().{then[0]}({n[1]})\n"
            f"for value in {name}.{then[1]}({n[2]}):\n"
            f"    if value < {name}.{how[1]}() / {n[0]}:\n"
            f"        print('{by}', value, {name}.{how[0]}() - value)"
        )
    return lines


def without_feedback(whole: Report) -> Report:
    """The same where the machines did not finish the feedback."""
    ungraded = {"points": None, "level": None, "basis": "ungraded", "reason": "", "evidence": ()}
    criteria = [one.model_copy(update=ungraded) if one.stage == "feedback" else one for one in whole.criteria]
    why = for_student("engine_stalled")
    changes = {
        "status": RoundState.PARTIAL,
        "criteria": tuple(criteria),
        "points": None,
        "points_so_far": round(sum(one.points or 0 for one in criteria), 2),
        "feedback": None,
        "failures": {"feedback": why.message},
        "failure_messages": {"feedback": why},
    }
    return whole.model_copy(update=changes)


def a_report(levels: Sequence[int], chance: random.Random, **changes: Any) -> Report:
    """A whole report with these levels."""
    here = [Location(document="cafe.ipynb", cell=cell, line=line) for cell, line in ((3, 4), (4, 3), (5, 2))]
    graded = tuple(
        CriterionGrade(
            criterion=name, title=title, stage=stage, points=round(points * level / 4, 2), max_points=points,
            level=level, highest=4, basis="checks and model" if stage == "analysis" else "model",
            reason=REASONS[name][0 if level >= 3 else 1], evidence=_checks(name, level),
        )
        for (name, title, stage, points, _where), level in zip(CRITERIA, levels, strict=True)
    )  # fmt: skip
    findings = (
        Finding(severity="praise", title="Missing prices are counted first", detail="That makes all later sums honest.", location=here[0]),
        Finding(severity="minor" if levels[2] > 2 else "major", title="The axes of the plot bear no names", detail="Add `xlabel` and `ylabel`, with the currency.", location=here[1]),
        Finding(severity="note", title="Three products are too few to compare", detail="Show ten, or the share of each.", location=here[2]),
    )  # fmt: skip
    advice = Suggestion(
        what="Name the months", why="Numbers make readers count.", how="Take `strftime('%b')` of the day.",
        example="sales.groupby(sales['day'].dt.strftime('%b'))['price'].sum()", location=here[1],
    )  # fmt: skip
    points = round(sum(one.points or 0 for one in graded), 2)
    analysis = AnalysisOutput(
        judgements=(Judgement(criterion="load", level=levels[0]),), findings=findings, suggestions=(advice,),
        summary="A clear way from the file to an answer. Missing prices are handled with care; the plot needs names.",
        strengths=("Each step has a sentence that says why.",),
    )  # fmt: skip
    feedback = FeedbackOutput(
        judgements=(), achieved="You went from 48,211 rows to **one clear answer**, and you counted what was missing first.",
        reflection="You noticed that June sells less than May, and you asked why. That is how an analyst thinks.",
        strengths=("You say what you do before you do it.",), practice="In a café, such a table would be made every week.",
        develop=("Give your plot names, so that it speaks without you.",), next_step="Compare the hours of the day next.",
    )  # fmt: skip
    written = BY_MODELS(models=["qwen3-coder:30b"])
    values = {
        "criteria": graded,
        "points": points,
        "points_so_far": points,
        "max_points": 20,
        "analysis": analysis,
        "notice": written.message,
        "notice_code": written.code,
        "notice_params": written.params,
    }
    return report(**{**values, "feedback": feedback, "flags": (), **changes})


def _checks(name: str, level: int) -> tuple[CheckOutcome, ...]:
    if name == "load":
        return (CheckOutcome(check="1", label="reads sales.csv", earned=1, message="found in cell 2"),)
    if name == "clean":
        tests = tuple(
            TestOutcome(name=f"rows after cleaning, month {n}", passed=level >= n) for n in (2, 3, 4)
        )
        return (CheckOutcome(check="2", label="passes its tests", earned=level / 4, tests=tests),)
    return ()
