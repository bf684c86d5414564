"""An assignment as the files of its folder: the same whether it was imported or written in the browser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_args

from pydantic import AwareDatetime, BaseModel, Field, model_validator

from grading.assignments.editor.toml_writer import written
from grading.assignments.loader import MANIFEST, Counts, Language, Release, read_manifest
from grading.domain.base_value import Value
from grading.domain.errors import AssignmentError
from grading.domain.jobs import ENGLISH
from grading.domain.lateness import LateRule
from grading.domain.rubric import Rubric

RUBRIC = "rubric.json"
TASK = "task.md"
INSTRUCTIONS = "instructions/"
FOLDERS = ("starter", "solution", "tests", "data")
"""Those whose files people put there."""


class Settings(Value):
    """What holds for an assignment whichever version of its rubric counts."""

    title: str = Field(min_length=1, max_length=200)
    slug: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)
    language: str = Field(default="", max_length=32)
    due: AwareDatetime | None = None
    release: Release = "after_review"
    release_at: AwareDatetime | None = None
    late: LateRule = LateRule()
    max_submissions: int | None = Field(default=None, ge=1, le=1000)
    group_size: int = Field(default=1, ge=1, le=100)
    counts: Counts = "latest"
    visible: bool = True
    code_editor: bool = False
    """Students may write and check their code in the browser."""

    @model_validator(mode="after")
    def _dated(self) -> Settings:
        if self.release == "at" and self.release_at is None:
            raise ValueError("say when grades are released, or choose another way")
        return self


@dataclass(frozen=True)
class Content:
    """What a version holds, ready to be changed."""

    rubric: Rubric
    task: str = ""
    instructions: Mapping[str, str] = field(default_factory=dict)
    share_solution: bool = False
    spoken_language: str = ENGLISH
    show_draft: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    """All of the folder but what the fields above say."""


def compose(settings: Settings, content: Content) -> dict[str, bytes]:
    """The files of the folder, which the reader of folders reads as exactly this."""
    kept = {path: data for path, data in content.files.items() if not _said_elsewhere(path)}
    words = {f"{INSTRUCTIONS}{stage}.md": text for stage, text in content.instructions.items()}
    texts = {TASK: content.task, **words}
    return {
        **kept,
        **{path: text.strip().encode() + b"\n" for path, text in texts.items() if text.strip()},
        RUBRIC: (json.dumps(plain(content.rubric), indent=2, ensure_ascii=False) + "\n").encode(),
        MANIFEST: written(_manifest(settings, content)).encode(),
    }


def others(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a stored folder without those that say what `Content` has fields for."""
    try:
        rubric = read_manifest(files).rubric if MANIFEST in files else None
    except AssignmentError:  # of a version before some key got its meaning
        rubric = None
    named = (rubric or "").replace("\\", "/").removeprefix("./")
    return {path: data for path, data in files.items() if not _said_elsewhere(path) and path != named}


def exported(files: Mapping[str, bytes], settings: Settings, content: Content) -> dict[str, bytes]:
    """The files to hand out: those that were imported where they still say what holds, else new ones."""
    try:
        said = read_manifest(files) if MANIFEST in files else None
    except AssignmentError:
        said = None
    same = said is not None and all(
        getattr(said, key) == getattr(settings, key) for key in ("title", "slug", "due", "release")
    )
    rules = _rules(settings)
    if same and said is not None and {**_DEFAULTS, **said.rules} == {**_DEFAULTS, **rules}:
        return dict(files)
    return compose(settings, content)


def plain(value: Any) -> Any:
    """A value as JSON without what is the default anyway; the kind of a check stays."""
    if isinstance(value, BaseModel):
        found = {}
        for name, info in type(value).model_fields.items():
            one = getattr(value, name)
            if name == "kind" or info.is_required() or one != info.get_default(call_default_factory=True):
                found[name] = plain(one)
        return found
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value


def _said_elsewhere(path: str) -> bool:
    return path in (MANIFEST, RUBRIC, TASK) or path.startswith(INSTRUCTIONS)


_DEFAULTS: dict[str, Any] = {
    "release_at": None,
    "late": {},
    "group_size": 1,
    "counts": "latest",
    "visible": True,
    "code_editor": False,
    "max_submissions": None,
}


def _rules(settings: Settings) -> dict[str, Any]:
    return {
        "release_at": settings.release_at,
        "late": settings.late.model_dump(exclude_defaults=True),
        "group_size": settings.group_size,
        "counts": settings.counts,
        "visible": settings.visible,
        "code_editor": settings.code_editor,
        "max_submissions": settings.max_submissions,
    }


def _manifest(settings: Settings, content: Content) -> dict[str, Any]:
    said: dict[str, Any] = {
        "title": settings.title,
        "slug": settings.slug,
        "language": settings.language if settings.language in get_args(Language) else None,
        "due": settings.due,
        "release": settings.release,
        "spoken_language": content.spoken_language,
        "share_solution": content.share_solution or None,
        "show_draft": content.show_draft or None,
        "rubric": RUBRIC,
    }
    for name, value in _rules(settings).items():
        said[name] = None if value == _DEFAULTS[name] else value
    return {key: _whole_seconds(value) for key, value in said.items()}


def _whole_seconds(value: Any) -> Any:
    return value.replace(microsecond=0) if isinstance(value, datetime) else value
