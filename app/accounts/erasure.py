"""Erasing a student, for administrators: what goes is shown first, and their id is typed to confirm."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from typing import IO

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from sqlalchemy.exc import SQLAlchemyError
from werkzeug.wrappers import Response as BaseResponse

from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import ngettext
from app.web.services import services
from grading.domain.errors import GraderError
from grading.domain.permissions import Actor
from grading.store import Store
from grading.store.privacy import erasure, export
from grading.store.privacy.erasure import Known, find_known, find_student

pages = Blueprint("erasing", __name__)
log = logging.getLogger(__name__)
IN_MEMORY = 8 * 1024 * 1024
PIECE = 256 * 1024


@pages.get("/users/<int(max=2147483647):user_id>/erase")
def form(user_id: int) -> str:
    """What there is of a student, and how to erase it."""
    _administrator()
    return _form(user_id)


@pages.post("/users/<int(max=2147483647):user_id>/erase")
def erase(user_id: int) -> str | tuple[str, int] | BaseResponse:
    """Erase everything of a student whose id was typed."""
    actor = _administrator()
    store = services().store
    with store.read() as session:
        student = find_known(session, f"user:{user_id}")
    if request.form.get("typed", "").strip() not in _ids(student):
        return _form(user_id, _("That is not the id of this student; nothing was erased.")), 422
    with store.write() as session:
        erasure.erase(session, student, actor.name)
    flash(_("Everything of %(who)s was erased. Back-ups made before still hold it.", who=_asked(student)))
    response = redirect(url_for("home.home"), 303)
    # after the answer: rewriting the file takes as long as it is large
    response.call_on_close(lambda: _compact(store))
    return response


@pages.get("/users/<int(max=2147483647):user_id>/export.zip")
def everything(user_id: int) -> Response:
    """All that is held on a student."""
    actor = _administrator()
    with services().store.write() as session:
        student = find_student(session, f"user:{user_id}")
        to = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed when it was sent
        export.write_export(session, student, to, actor.name)
    response = Response(_pieces(to), content_type="application/zip")
    response.headers.set("Content-Disposition", "attachment", filename=f"user-{user_id}.zip")
    response.call_on_close(to.close)
    return response


def _administrator() -> Actor:
    actor = auth.actor()
    auth.require(actor, "administer")
    return actor


def _ids(student: Known) -> tuple[str, ...]:
    """What may be typed: an id, never only a name."""
    return (student.name, *student.subjects)


def _counted(name: str, count: int) -> str:
    """So many of what is theirs, in words."""
    words = {
        "submissions": ngettext("%(count)s hand-in", "%(count)s hand-ins", count),
        "rounds": ngettext("%(count)s grading", "%(count)s gradings", count),
        "runs": ngettext("%(count)s run on machines", "%(count)s runs on machines", count),
        "tokens": ngettext("%(count)s token", "%(count)s tokens", count),
        "class zips": ngettext(
            "%(count)s class zip that may hold their work",
            "%(count)s class zips that may hold their work",
            count,
        ),
    }
    return words.get(name, f"{count} {name}")


def _asked(student: Known) -> str:
    """What the form asks for: a name to sign in with, which people know better than a platform's number."""
    return next(iter(student.local or student.subjects), student.name)


def _form(user_id: int, problem: str = "") -> str:
    with services().store.look() as session:
        student, counts = erasure.preview(session, f"user:{user_id}")
    return render_template(
        "accounts/erase.html",
        user_id=user_id,
        student=student,
        asked=_asked(student),
        said=_counted,
        counts=counts,
        problem=problem,
    )


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while piece := file.read(PIECE):
            yield piece


def _compact(store: Store) -> None:
    try:
        erasure.compact(store)
    except (GraderError, SQLAlchemyError) as error:
        log.warning("a student is erased, but the database's file was not rewritten: %s", error)
