"""Questions to the instructor worded by a model, behind all grading; until then the template stands."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from flask import current_app
from flask.sansio.app import App
from redis.exceptions import RedisError

from app.gateway_requests.asking import AnswerCut, ModelQuestion, ask_model
from app.gateway_requests.errors import Refused
from app.gateway_requests.slots import GatewayServices
from app.trust.question_texts import ShownQuestion, named
from app.web.i18n import current
from grading.assignments.editor import question_from_model
from grading.assignments.editor.question_from_model import Facts
from grading.broker.away import why_away
from grading.broker.gateway_requests import Event
from grading.config.language_names import LANGUAGES
from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.store import Store, tables
from grading.store.trust import questions

log = logging.getLogger(__name__)
LIMIT_S = 120.0
"""For one question, waiting for a machine included."""
AT_ONCE = 5
"""Questions that are worded together, the largest first."""
MOST = 4
"""Assignments whose questions are worded at the same time, by this process."""


class NotWorded(GraderError):
    """The model did not answer."""

    code = "not_worded"
    default_message = define_message(
        "error.not_worded", "The model did not answer. The server's log says why."
    )


@dataclass
class Drafting:
    """Assignments whose questions a model words now, in this process."""

    busy: set[int] = field(default_factory=set)
    problems: dict[int, GraderError] = field(default_factory=dict)
    """Why a model did not word them the last time."""
    lock: threading.Lock = field(default_factory=threading.Lock)


def remember(app: App) -> None:
    """Give the app its drafting."""
    app.extensions["grader-question-drafts"] = Drafting()


def drafting() -> Drafting:
    """That of the current app."""
    return cast(Drafting, current_app.extensions["grader-question-drafts"])


def begin(gateway: GatewayServices, store: Store, assignment_id: int, some: Sequence[ShownQuestion]) -> bool:
    """Have the largest of these worded; False where that is under way, or too much else is."""
    mine = drafting()
    with mine.lock:
        if assignment_id in mine.busy or len(mine.busy) >= MOST:
            return False
        mine.busy.add(assignment_id)
        mine.problems.pop(assignment_id, None)
    language = LANGUAGES.get(current(), "English")
    facts = [(one.found.key, _facts(one)) for one in some[:AT_ONCE]]
    work = (mine, gateway, store, assignment_id, facts, language)
    threading.Thread(target=_word_all, args=work, daemon=True).start()
    return True


def _facts(one: ShownQuestion) -> Facts:
    return Facts(
        criterion=one.found.title,
        description=one.found.description,
        template=one.text,
        levels=one.levels,
        names=named(one.found.group.cause),
        excerpts=tuple(example.lines for example in one.found.examples),
    )


def _word_all(
    mine: Drafting,
    gateway: GatewayServices,
    store: Store,
    assignment_id: int,
    some: Sequence[tuple[tuple[str, str], Facts]],
    language: str,
) -> None:
    """The body of the thread."""
    problem: GraderError | None = NotWorded()
    try:
        for key, facts in some:
            word_one(gateway, store, assignment_id, key, facts, language)
        problem = None
    except Refused as error:
        log.warning("questions were not worded: %s", error)
        problem = error
    except RedisError as error:
        log.warning("%s, questions were not worded: %s", why_away(error), type(error).__name__)
    except Exception:
        log.exception("wording questions failed")
    finally:
        with mine.lock:
            mine.busy.discard(assignment_id)
            if problem is not None:
                mine.problems[assignment_id] = problem


def word_one(
    gateway: GatewayServices,
    store: Store,
    assignment_id: int,
    key: tuple[str, str],
    facts: Facts,
    language: str,
) -> None:
    """Have one question worded, and store the words if they are a question about the same."""
    models: list[str] = []

    def heard(event: Event) -> None:
        if event.kind == "begun":
            models.append(event.model)

    request = ModelQuestion(
        question_from_model.system(language),
        question_from_model.user(facts),
        question_from_model.schema(),
        question_from_model.MAX_TOKENS,
    )
    try:
        answer = ask_model(gateway, request, LIMIT_S, lambda: False, heard)
    except AnswerCut:
        answer = ""
    text = question_from_model.wording(answer, facts.names)
    if text is None:
        log.info("a model's words for a question were not used")
        return
    with store.write() as session:
        assignment = session.get(tables.Assignment, assignment_id)
        if assignment is not None:
            questions.save_wording(session, assignment, key, text, models[-1] if models else "")
