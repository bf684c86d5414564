"""The files of an assignment: starter, solution, tests and data; and whole folders in and out as zips."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response as BaseResponse

from app.assignments.editor import forms
from app.web import assignment_pages, auth, parsing
from app.web.assignment_pages import ANY
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.services import services
from grading.assignments.editor.folder import FOLDERS, Content, others
from grading.assignments.loader import MANIFEST, Assignment, read_files
from grading.documents import Limits, UploadedFile
from grading.documents.files import upload_name
from grading.documents.zip_format import Budget, ZipReader
from grading.domain.errors import AssignmentError, DocumentError, EmptyUpload, NotFound
from grading.domain.permissions import Actor
from grading.store import tables
from grading.store.assignments import settings, versions
from grading.store.assignments.versions import NothingChanged, SavedMeanwhile
from grading.store.blobs import load_blob
from grading.store.grades import extensions

pages = Blueprint("editor_files", __name__)
_PART = re.compile(r"[^/\\\x00-\x1f\x7f]{1,120}")
_JUNK = ("__MACOSX", "__pycache__", "Thumbs.db", "desktop.ini")
MOST_FILES = 500


@pages.get(f"/assignments/{ANY}/material")
def listing(assignment_id: int) -> str:
    """All files of the newest version, by folder."""
    return _page(auth.actor(), assignment_id)


@pages.get(f"/assignments/{ANY}/material/<path:path>")
def download(assignment_id: int, path: str) -> Response:
    """One of them, as it is."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        row = versions.load_newest(session, found).version
        if path not in row.files:
            raise NotFound(_("This file does not exist."))
        data = load_blob(session, row.files[path])
    return attached(data, path.rpartition("/")[2], "application/octet-stream")


@pages.post(f"/assignments/{ANY}/material")
def change(assignment_id: int) -> tuple[str, int] | BaseResponse:
    """Add or replace files in a folder, or remove one, as a new draft."""
    actor = auth.actor()
    _require(actor, assignment_id)
    try:
        removed = request.form.get("remove", "")
        if removed:
            return _saved(actor, assignment_id, {}, removed)
        folder = request.form.get("folder", "")
        if folder not in FOLDERS:
            raise NotFound(_("Choose one of the folders."))
        return _saved(actor, assignment_id, placed(folder, parsing.uploaded(request.files.getlist("files"))))
    except (DocumentError, AssignmentError, SavedMeanwhile) as error:
        return _page(actor, assignment_id, render_error(error)), error.status


@pages.get(f"/assignments/{ANY}/versions/<int(max=2147483647):version_number>/folder.zip")
def export(assignment_id: int, version_number: int) -> Response:
    """A version as the zip of a folder, which can be imported again."""
    number = version_number
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        files = versions.export_files(
            session, found, versions.version_by_number(session, assignment_id, number)
        )
        name = f"{found.slug}-{number}"
    return attached(zipped(files, name), f"{name}.zip", "application/zip")


@pages.post(f"/assignments/{ANY}/import")
def import_folder(assignment_id: int) -> tuple[str, int] | BaseResponse:
    """Read a zip of an assignment's folder as a new draft, and its settings where that is wanted."""
    actor = auth.actor()
    _require(actor, assignment_id)
    try:
        read, files = read_zip(one_zip())
        content = content_of(read, files)
        with services().store.write() as session:
            found = assignment_pages.changeable(session, actor, assignment_id)
            note = request.form.get("note", "") or _("Imported from ZIP file")
            if request.form.get("settings"):
                imported = from_folder(settings.settings_of(found), read)
                extensions.apply_settings(session, found, imported, actor)
            base = forms.base()
            made = versions.save_draft(session, found, content, base, actor, note, read.notes).number
        flash(_("Imported as version %(number)s. It is a draft until you publish it.", number=made))
        forms.flash_report(read.notes)
    except NothingChanged as error:
        flash(render_error(error))
    except (DocumentError, AssignmentError, SavedMeanwhile) as error:
        return _page(actor, assignment_id, render_error(error)), error.status
    return redirect(url_for("editor_rubric.edit", assignment_id=assignment_id), 303)


def _require(actor: Actor, assignment_id: int) -> None:
    """Before anything that was sent is read."""
    with services().store.read_autocommit() as session:
        assignment_pages.changeable(session, actor, assignment_id)


def _saved(actor: Actor, assignment_id: int, new: Mapping[str, bytes], removed: str = "") -> BaseResponse:
    """Raises AssignmentError, SavedMeanwhile and NotFound."""
    with services().store.write() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        try:
            made = save_files(session, found, forms.base(), actor, new, removed)
            flash(_("Saved as version %(number)s. It is a draft until you publish it.", number=made.number))
        except NothingChanged as error:
            flash(render_error(error))
    return redirect(url_for("editor_files.listing", assignment_id=assignment_id), 303)


def placed(folder: str, files: Iterable[UploadedFile]) -> dict[str, bytes]:
    """Files by their paths in one of the folders. Raises AssignmentError."""
    return {f"{folder}/{_inside(one.name)}": one.data for one in files}


def save_files(
    session: Session,
    assignment: tables.Assignment,
    base: int,
    actor: Actor,
    new: Mapping[str, bytes],
    removed: str = "",
) -> tables.RubricVersion:
    """Save version `base` with these files, or without one, as a new draft.

    Raises AssignmentError, NotFound, SavedMeanwhile and NothingChanged.
    """
    content = versions.load_content(session, versions.version_by_number(session, assignment.id, base))
    if removed and removed not in content.files:
        raise NotFound(_("This file does not exist."))
    files = {path: data for path, data in {**content.files, **new}.items() if path != removed}
    _require_room(files)
    note = _("Removed %(path)s", path=removed) if removed else _("Files: %(paths)s", paths=", ".join(new))
    return versions.save_draft(session, assignment, replace(content, files=files), base, actor, note)


def _page(actor: Actor, assignment_id: int, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        now = versions.load_newest(session, found)
        top, paths = assignment_pages.head(session, found, now), sorted(now.version.files)
        criteria = [(one["title"], len(one["checks"])) for one in now.version.rubric["criteria"]]
    paths_by_folder = {folder: [p for p in paths if p.startswith(f"{folder}/")] for folder in FOLDERS}
    return render_template(
        "assignments/editor/files.html",
        head=top,
        folders=paths_by_folder,
        about=_about(),
        criteria=criteria,
        problem=problem,
        server=services().config.server,
        base=top.number,
    )


def _about() -> dict[str, str]:
    return {
        "starter": _("Given to every student. Its lines earn no points."),
        "solution": _("A model solution. Checks compare submissions with its values."),
        "tests": _("Tests, and code that runs before the submission. Students do not receive these files."),
        "data": _("Data for the task, available to the work when it runs."),
    }


# --- zips -----------------------------------------------------------------------------------------------


def one_zip() -> UploadedFile:
    """The zip of the form. Raises EmptyUpload."""
    return parsing.uploaded(request.files.getlist("zip"))[0]


def read_zip(upload: UploadedFile) -> tuple[Assignment, dict[str, bytes]]:
    """The assignment in a zip of its folder, and its files. Raises DocumentError, AssignmentError."""
    limits = _limits()
    budget = Budget(limits.max_entries, limits.max_upload_bytes, limits.max_entries)
    reader = ZipReader(upload, limits, budget)
    found = {path: entry for entry, path in reader.members() if not _is_junk(path)}
    roots = {path.partition("/")[0] for path in found}
    root = f"{next(iter(roots))}/" if len(roots) == 1 and MANIFEST not in found else ""
    files = {path.removeprefix(root): reader.unpack(entry) for path, entry in found.items()}
    if MANIFEST not in files:
        raise EmptyUpload(_("This ZIP file contains no assignment.toml. Zip an assignment's folder."))
    _require_room(files)
    return read_files(files, limits, root.rstrip("/") or upload_name(upload.name).rpartition(".")[0]), files


def content_of(read: Assignment, files: Mapping[str, bytes]) -> Content:
    """What was read, ready to be saved."""
    return Content(
        rubric=read.rubric,
        task=read.task,
        instructions=read.instructions,
        share_solution=read.share_solution,
        spoken_language=read.spoken_language,
        show_draft=read.show_draft,
        files=others(files),
    )


def from_folder(current: Any, read: Assignment) -> Any:
    """Settings with what a folder says of them; what it does not speak of stays. Raises AssignmentError."""
    fields = {name: getattr(current, name) for name in type(current).model_fields}
    rules = {**read.rules, "late": read.rules.get("late", fields["late"])}
    late = rules["late"] if isinstance(rules["late"], dict) else rules["late"].model_dump()
    data = {**fields, **rules, "late": late, "title": read.title, "language": read.language, "due": read.due}
    if read.release is not None:
        data["release"] = read.release
    return forms.checked(data)


def zipped(files: Mapping[str, bytes], root: str) -> bytes:
    """The files as a zip with one folder in it; the same files give the same zip."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(f"{root}/{path}"), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def attached(data: bytes, name: str, kind: str) -> Response:
    """A file that a browser saves and never shows."""
    response = Response(data, mimetype=kind)
    response.headers.set("Content-Disposition", "attachment", filename=name)
    return response


def _limits() -> Limits:
    """Those of submissions, but for the number of files: data and tests may be many."""
    return replace(parsing.limits(services().config.server), max_files=MOST_FILES, max_data_bytes=0)


def _require_room(files: Mapping[str, bytes]) -> None:
    limits = _limits()
    if len(files) > limits.max_entries or sum(map(len, files.values())) > limits.max_upload_bytes:
        raise AssignmentError(_("The files together exceed the size limit of an assignment."))


def _inside(name: str) -> str:
    """A file's path below its folder, as browsers give it. Raises AssignmentError."""
    parts = [part for part in name.replace("\\", "/").split("/") if part]
    fits = parts and all(_PART.fullmatch(part) and part[0] != "." and part.strip() == part for part in parts)
    if not fits or len("/".join(parts)) > 300:
        raise AssignmentError(
            _("%(name)s: rename this file, its name contains characters that are not allowed", name=name[:80])
        )
    return "/".join(parts)


def _is_junk(path: str) -> bool:
    return any(part.startswith(".") or part in _JUNK for part in path.split("/"))
