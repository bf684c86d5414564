"""Reads an assignment folder: assignment.toml, starter, solution, data and instructions, as one value."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import AwareDatetime, Field, ValidationError, field_validator, model_validator

from grading.assignments.legacy_import import Works, is_legacy, read_legacy_rubric
from grading.assignments.test_validation import check_tests
from grading.config.language_names import english_name
from grading.documents import Limits, UploadedFile, in_language, read, set_apart
from grading.documents.files import KINDS, extension
from grading.domain.base_value import Value
from grading.domain.document import Document
from grading.domain.errors import AssignmentError, DocumentError
from grading.domain.jobs import ENGLISH
from grading.domain.lateness import LateRule
from grading.domain.messages import define_message
from grading.domain.rubric import Adjustment, Criterion, Rubric
from grading.domain.rubric_errors import check_rubric, explain

NOT_A_FOLDER = define_message(
    "folder.not_a_folder", "is not a folder; name the folder that holds %(manifest)s"
)
MISSING_FROM_FOLDER = define_message("folder.missing_from_folder", "is missing from the folder")
RUBRIC_AND_CRITERIA = define_message(
    "folder.rubric_and_criteria", "names a file, but criteria are set here too; keep one of them"
)
RUBRIC_AND_ADJUSTMENTS = define_message(
    "folder.rubric_and_adjustments",
    "names a file, but adjustments or bonus_at_most are set here too; move them to that file",
)
NO_RUBRIC_FILE = define_message("folder.no_rubric_file", "there is no file %(name)s in the folder")
TWO_TASKS = define_message("folder.two_tasks", "is set, but the folder has a task.md too; keep one of them")
NO_SLUG = define_message(
    "folder.no_slug", 'is missing, and the folder\'s name gives none; write slug = "homework-1"'
)
IS_A_LINK = define_message("folder.is_a_link", "is a link; put the file itself into the folder")
FOLDER_TOO_LARGE = define_message(
    "folder.folder_too_large", "exceeds the size limit of the folder; remove or shorten files"
)
TOO_MANY_FILES = define_message("folder.too_many_files", "the folder has more than %(most)s files")
NOT_TOML = define_message("folder.not_toml", "is not valid TOML: %(why)s")
NOT_UTF8 = define_message("folder.not_utf8", "is not UTF-8 text; save it as UTF-8")
NOT_JSON = define_message("folder.not_json", "is not valid JSON: %(why)s")
NOT_NAMED_AFTER_STAGE = define_message(
    "folder.not_named_after_stage", "name it after a stage, such as instructions/feedback.md"
)
NOT_READABLE = define_message("folder.not_readable", "cannot be read (%(why)s)")
NO_CRITERIA = define_message(
    "folder.no_criteria", 'are missing; write [[criteria]] or name a file: rubric = "rubric.json"'
)

MANIFEST = "assignment.toml"
Release = Literal["at_once", "after_review", "at"]
Counts = Literal["latest", "best"]
Language = Literal["r", "python", "sql", "java", "c", "cpp", "javascript", "typescript"]
_JUNK = frozenset({"__pycache__", "__MACOSX", "Thumbs.db", "desktop.ini"})
_STAGE = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class Manifest(Value):
    """What assignment.toml may say."""

    title: str = Field(min_length=1, max_length=200)
    slug: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)
    course: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)
    language: Language | None = None
    task: str | None = None
    due: AwareDatetime | None = None
    release: Release | None = None
    release_at: AwareDatetime | None = None
    late: LateRule | None = None
    max_submissions: int | None = Field(default=None, ge=0, le=1000)
    """0: any number."""
    group_size: int | None = Field(default=None, ge=1, le=100)
    counts: Counts | None = None
    visible: bool | None = None
    code_editor: bool | None = None
    share_solution: bool = False
    spoken_language: str = ENGLISH
    show_draft: bool = False
    rubric: str | None = None
    criteria: tuple[Criterion, ...] = ()
    equivalents: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    adjustments: tuple[Adjustment, ...] = ()
    bonus_at_most: float | None = Field(default=None, ge=0)

    @field_validator("spoken_language")
    @classmethod
    def _named(cls, said: str) -> str:
        return english_name(said)

    @model_validator(mode="after")
    def _dated(self) -> Manifest:
        if self.release == "at" and self.release_at is None:
            raise ValueError('release is "at", so give release_at, too')
        return self

    @property
    def rules(self) -> dict[str, Any]:
        """What it says of submitting and of release beyond due date and policy; only what it does say."""
        said: dict[str, Any] = {
            "release_at": self.release_at,
            "late": self.late and self.late.model_dump(exclude_defaults=True),
            "group_size": self.group_size,
            "counts": self.counts,
            "visible": self.visible,
            "code_editor": self.code_editor,
        }
        found = {name: value for name, value in said.items() if value is not None}
        return (
            found
            if self.max_submissions is None
            else {**found, "max_submissions": self.max_submissions or None}
        )


@dataclass(frozen=True)
class Assignment:
    """An assignment as its folder says it; `version` changes with any byte of the folder."""

    slug: str
    title: str
    language: str
    task: str
    due: datetime | None
    release: Release | None
    """Nothing: as the server's configuration says."""
    rubric: Rubric
    instructions: dict[str, str]
    """The instructor's own words, by stage."""
    starter: tuple[Document, ...]
    solution: tuple[Document, ...]
    """Set apart from the starter."""
    share_solution: bool
    """Whether models may see the solution."""
    files: tuple[tuple[str, bytes], ...]
    """All files with their paths in the folder, sorted."""
    version: str
    """SHA-256 over the files, hexadecimal."""
    course: str | None = None
    spoken_language: str = ENGLISH
    """What feedback is written in, as its English name."""
    show_draft: bool = False
    """Whether students may see what is written about their work while it is being written."""
    notes: tuple[str, ...] = field(default=())
    """Contradictions in a legacy rubric, and what was repaired while reading."""
    translated: bool = False
    """Whether the rubric was translated from another autograder's format."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """What the manifest says of late work, groups and the like, by column of the table; the rest stays."""


def read_folder(path: Path, limits: Limits | None = None) -> Assignment:
    """The assignment in a folder. Raises AssignmentError with a sentence that names the key or file."""
    limits = limits or Limits()
    return read_files(_files(path, limits), limits, path.resolve().name)


def read_files(files: Mapping[str, bytes], limits: Limits, name: str = "") -> Assignment:
    """The assignment in the files of a folder, by path; `name` is the folder's. Raises as `read_folder`."""
    manifest = read_manifest(files)
    starter = in_language(_documents("starter", files, limits), manifest.language or "")
    solution = set_apart(in_language(_documents("solution", files, limits), manifest.language or ""), starter)
    data = frozenset(name for name in files if name.startswith("data/"))
    rubric, notes = _rubric(manifest, files, Works(solution, starter, data))
    language: str = manifest.language or next((d.language for d in (*starter, *solution)), "text")
    notes += tuple(note for d in (*starter, *solution) for note in d.notes)
    check_tests(rubric, files, solution, language)
    return Assignment(
        slug=manifest.slug or _slug(name),
        title=manifest.title,
        language=language,
        task=_task(manifest, files),
        due=manifest.due,
        release=manifest.release,
        rubric=rubric,
        instructions=_instructions(files),
        starter=starter,
        solution=solution,
        share_solution=manifest.share_solution,
        files=tuple(sorted(files.items())),
        version=_version(files),
        course=manifest.course,
        spoken_language=manifest.spoken_language,
        show_draft=manifest.show_draft,
        notes=notes,
        translated=_is_translated(manifest, files),
        rules=manifest.rules,
    )


def _files(folder: Path, limits: Limits) -> dict[str, bytes]:
    """All files below the folder, hidden ones and links left out, within the limits."""
    if not folder.is_dir():
        raise AssignmentError(NOT_A_FOLDER(manifest=MANIFEST), at=folder.name)
    found: dict[str, bytes] = {}
    total = 0
    for file in sorted(folder.rglob("*")):
        relative = file.relative_to(folder)
        if any(part.startswith(".") or part in _JUNK for part in relative.parts):
            continue
        if file.is_symlink() or any((folder / p).is_symlink() for p in relative.parents if p.parts):
            raise AssignmentError(IS_A_LINK, at=relative.as_posix())
        if not file.is_file():
            continue
        size = file.stat().st_size
        total += size
        if size > limits.max_file_bytes or total > limits.max_upload_bytes:
            raise AssignmentError(FOLDER_TOO_LARGE, at=relative.as_posix())
        if len(found) >= limits.max_entries:
            raise AssignmentError(TOO_MANY_FILES(most=limits.max_entries))
        try:
            found[relative.as_posix()] = file.read_bytes()
        except OSError as error:
            raise AssignmentError(NOT_READABLE(why=error.strerror), at=relative.as_posix()) from error
    return found


def read_manifest(files: Mapping[str, bytes]) -> Manifest:
    """What assignment.toml says. Raises AssignmentError."""
    try:
        data = tomllib.loads(_text(MANIFEST, files))
        return Manifest.model_validate(data)
    except tomllib.TOMLDecodeError as error:
        raise AssignmentError(NOT_TOML(why=error), at=MANIFEST) from error
    except ValidationError as error:
        raise explain(error, Manifest) from error


def _text(name: str, files: Mapping[str, bytes]) -> str:
    if name not in files:
        raise AssignmentError(MISSING_FROM_FOLDER, at=name)
    try:
        return files[name].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AssignmentError(NOT_UTF8, at=name) from error


def _rubric(manifest: Manifest, files: Mapping[str, bytes], works: Works) -> tuple[Rubric, tuple[str, ...]]:
    """The rubric of the manifest or of the file it names, checked, and what contradicts itself in it."""
    if manifest.rubric is not None and manifest.criteria:
        raise AssignmentError(RUBRIC_AND_CRITERIA, at="rubric")
    if manifest.rubric is not None and (manifest.adjustments or manifest.bonus_at_most is not None):
        raise AssignmentError(RUBRIC_AND_ADJUSTMENTS, at="rubric")
    notes: tuple[str, ...] = ()
    try:
        if manifest.rubric is not None:
            rubric, notes = _rubric_file(manifest.rubric, files, works)
            if manifest.equivalents:
                both = {**rubric.equivalents, **manifest.equivalents}
                rubric = rubric.model_copy(update={"equivalents": both})
        elif manifest.criteria:
            rubric = Rubric(
                criteria=manifest.criteria,
                equivalents=manifest.equivalents,
                adjustments=manifest.adjustments,
                bonus_at_most=manifest.bonus_at_most,
            )
        else:
            raise AssignmentError(NO_CRITERIA, at="criteria")
    except ValidationError as error:
        raise explain(error, Rubric) from error
    check_rubric(rubric)
    return rubric, notes


def _rubric_file(name: str, files: Mapping[str, bytes], works: Works) -> tuple[Rubric, tuple[str, ...]]:
    name = PurePosixPath(name.replace("\\", "/")).as_posix()
    if name not in files:
        raise AssignmentError(NO_RUBRIC_FILE(name=name), at="rubric")
    try:
        data = json.loads(_text(name, files))
    except (ValueError, RecursionError) as error:
        raise AssignmentError(NOT_JSON(why=error), at=name) from error
    if is_legacy(data):
        return read_legacy_rubric(data, works)
    return Rubric.model_validate(data), ()


def _is_translated(manifest: Manifest, files: Mapping[str, bytes]) -> bool:
    """Of a rubric that was read without an error."""
    if manifest.rubric is None:
        return False
    name = PurePosixPath(manifest.rubric.replace("\\", "/")).as_posix()
    return is_legacy(json.loads(_text(name, files)))


def _task(manifest: Manifest, files: Mapping[str, bytes]) -> str:
    if manifest.task is not None and "task.md" in files:
        raise AssignmentError(TWO_TASKS, at="task")
    return manifest.task or (_text("task.md", files).strip() if "task.md" in files else "")


def _instructions(files: Mapping[str, bytes]) -> dict[str, str]:
    found = {}
    for name in files:
        folder, _, rest = name.partition("/")
        if folder != "instructions":
            continue
        stage = rest.removesuffix(".md")
        if stage == rest or not _STAGE.fullmatch(stage):
            raise AssignmentError(NOT_NAMED_AFTER_STAGE, at=name)
        found[stage] = _text(name, files).strip()
    return found


def _documents(folder: str, files: Mapping[str, bytes], limits: Limits) -> tuple[Document, ...]:
    """The readable files of a folder; others, such as data, are only kept."""
    uploads = [
        UploadedFile(name.removeprefix(f"{folder}/"), data)
        for name, data in files.items()
        if name.startswith(f"{folder}/") and extension(name) in KINDS and data.strip()
    ]
    if not uploads:
        return ()
    try:
        return read(uploads, limits).documents
    except DocumentError as error:
        raise AssignmentError(f"{folder}: {error}") from error


def _slug(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64]
    if not plain:
        raise AssignmentError(NO_SLUG, at="slug")
    return plain


def _version(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{len(name.encode())} {name} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()
