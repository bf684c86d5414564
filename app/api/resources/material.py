"""Files of an assignment: those that students may have, and all of its newest version."""

from __future__ import annotations

from typing import Literal

from flask import Response, url_for
from pydantic import BaseModel, Field

from app.api.etags import Changed
from app.api.fields import RequestModel
from app.api.guards import of_assignment
from app.api.resources.rubrics import ASSIGNMENT, VersionMade, require_newest, tag_of
from app.api.routes import Call, delete, get, put
from app.assignments.editor import files as editor
from grading.assignments.editor.folder import FOLDERS
from grading.documents import UploadedFile
from grading.domain.errors import NotFound
from grading.store import blobs, tables
from grading.store.assignments import versions
from grading.store.assignments.versions import SavedMeanwhile
from grading.store.views import assignment as assignment_view

BINARY = "application/octet-stream"
FILES = f"{ASSIGNMENT}/files"
MATERIAL = f"{ASSIGNMENT}/material"


class OfferedFile(BaseModel):
    """A file that students can download."""

    path: str = Field(
        description="the path, with its folder `starter` or `data`", examples=["data/sales.csv"]
    )
    size: int = Field(description="the size in bytes", examples=[1042])
    url: str = Field(
        description="the URL to download it", examples=["/api/v1/assignments/12/files/data/sales.csv"]
    )


class OfferedFiles(BaseModel):
    """All files that students can download."""

    items: list[OfferedFile] = Field(description="the files")


class MaterialFile(BaseModel):
    """A file of a version."""

    path: str = Field(
        description="the path, with its folder `starter`, `solution`, `tests` or `data`",
        examples=["tests/tests.py"],
    )
    size: int = Field(description="the size in bytes", examples=[1042])
    sha256: str = Field(description="the SHA-256 of the content", examples=["06c1097efce0"])
    url: str = Field(
        description="the URL to download it", examples=["/api/v1/assignments/12/material/tests/tests.py"]
    )


class Material(BaseModel):
    """All files of the newest version."""

    version: int = Field(description="the version number", examples=[4])
    items: list[MaterialFile] = Field(description="the files")


class MaterialUpload(RequestModel):
    """Files for one folder, as multipart/form-data."""

    folder: Literal["starter", "solution", "tests", "data"] = Field(
        description="the folder; students can see `starter` and `data`, but not `solution` and `tests`",
        examples=["data"],
    )
    files: list[bytes] = Field(
        min_length=1,
        description="the files; a name can have folders, such as `2026/sales.csv`",
        examples=[["day,sales\n"]],
    )


@get(FILES, of_assignment("assignment.see"))
def offered_files(call: Call, about: tables.Assignment) -> OfferedFiles:
    """List the files that students can download, of the version in use."""
    found = assignment_view.list_offered_files(call.session, about)
    return OfferedFiles(
        items=[
            OfferedFile(path=one.path, size=one.size, url=_url("offered_file", about, one.path))
            for one in found
        ]
    )


@get(f"{FILES}/<path:path>", of_assignment("assignment.see"), file=BINARY)
def offered_file(call: Call, about: tables.Assignment, path: str) -> Response:
    """Download a file that students can see."""
    data = assignment_view.load_offered_file(call.session, about, path)
    return editor.attached(data, path.rpartition("/")[2], BINARY)


@get(MATERIAL, of_assignment("assignment.change"))
def material(call: Call, about: tables.Assignment) -> Material:
    """List the files of the latest version, which can be a draft. Send its ETag to change them."""
    now = versions.load_newest(call.session, about)
    call.etag = tag_of(now)
    found = _paths(now.version)
    sizes = blobs.load_sizes(call.session, found.values())
    return Material(
        version=now.number,
        items=[
            MaterialFile(path=path, size=sizes[name], sha256=name, url=_url("material_file", about, path))
            for path, name in found.items()
        ],
    )


@get(f"{MATERIAL}/<path:path>", of_assignment("assignment.change"), file=BINARY)
def material_file(call: Call, about: tables.Assignment, path: str) -> Response:
    """Download a file of the latest version."""
    name = _paths(versions.load_newest(call.session, about).version).get(path)
    if name is None:
        raise NotFound(assignment_view.NO_SUCH_FILE)
    return editor.attached(blobs.load_blob(call.session, name), path.rpartition("/")[2], BINARY)


@put(MATERIAL, of_assignment("assignment.change"), matches=True)
def put_material(
    call: Call, about: tables.Assignment, form: MaterialUpload, uploads: tuple[UploadedFile, ...]
) -> VersionMade:
    """Add files to a folder, as a new draft. Files with the same name are replaced."""
    return _saved(call, about, editor.placed(form.folder, uploads))


@delete(f"{MATERIAL}/<path:path>", of_assignment("assignment.change"), matches=True)
def remove_material(call: Call, about: tables.Assignment, path: str) -> VersionMade:
    """Remove a file, as a new draft."""
    return _saved(call, about, {}, path)


def _saved(call: Call, about: tables.Assignment, new: dict[str, bytes], removed: str = "") -> VersionMade:
    """Raises Changed where the caller did not see the newest version."""
    now = versions.load_newest(call.session, about)
    require_newest(call, now)
    try:
        made = editor.save_files(call.session, about, now.number, call.actor, new, removed)
    except SavedMeanwhile as error:
        raise Changed(error.message) from None
    call.etag = tag_of(versions.load_newest(call.session, about))
    return VersionMade(version=made.number, published=False)


def _paths(row: tables.RubricVersion) -> dict[str, str]:
    """The files in the folders, by path."""
    return {path: name for path, name in sorted(row.files.items()) if path.partition("/")[0] in FOLDERS}


def _url(name: str, about: tables.Assignment, path: str) -> str:
    return url_for(f"api.{name}", assignment_id=about.id, path=path)
