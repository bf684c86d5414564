"""From uploaded files to documents."""

from __future__ import annotations

from collections.abc import Sequence

from grading.documents.archive import unpack
from grading.documents.files import (
    ALLOWED,
    DATA,
    KINDS,
    Kind,
    SubmittedFiles,
    UploadedFile,
    extension,
    listed,
    megabytes,
    same_name,
    shown,
    upload_name,
    without_extension,
)
from grading.documents.limits import Limits
from grading.documents.markdown import read_chunks, read_markdown
from grading.documents.notebook import read_notebook
from grading.documents.text import decode
from grading.documents.zip_format import Budget
from grading.domain.errors import DocumentError, EmptyUpload, UnsupportedFile, UploadTooLarge
from grading.domain.model import Cell, Document


def read(files: Sequence[UploadedFile], limits: Limits | None = None) -> SubmittedFiles:
    """Unpacks and reads what was uploaded. Without `limits` the usual ones hold.

    Raises DocumentError, or one of the more telling errors below it, with a sentence that names the file.
    """
    limits = limits or Limits()
    _check_upload(files, limits)
    members, notes = _members(files, limits)
    data = [member for member in members if extension(member.name) in DATA]
    notes += _check_data(data, limits)
    documents = tuple(
        read_document(member, limits) for member in members if extension(member.name) not in DATA
    )
    if not documents:
        raise EmptyUpload(f"There is only data, and nothing to grade; hand in {ALLOWED}, too.")
    return SubmittedFiles(tuple(members), documents, tuple(notes))


def read_document(file: UploadedFile, limits: Limits | None = None) -> Document:
    """Reads one file that is no zip. Raises DocumentError."""
    limits = limits or Limits()
    kind, language = _kind(file.name)
    if not file.data.strip():
        raise EmptyUpload(f"{shown(file.name)} is empty; save your work and upload it again.")
    if kind == "notebook":
        return read_notebook(file.name, file.data, limits)
    text, note = decode(file.name, file.data)
    if not text.strip():
        raise EmptyUpload(f"{shown(file.name)} is empty; save your work and upload it again.")
    if len(text) > limits.max_cell_chars:
        raise UploadTooLarge(
            f"{shown(file.name)} is longer than {limits.max_cell_chars} characters; "
            "load data from a file instead of pasting it."
        )
    ending = extension(file.name)
    if ending in (".rmd", ".qmd", ".md"):
        document = read_markdown(file.name, text) if ending == ".md" else read_chunks(file.name, text)
        if len(document.cells) > limits.max_cells:
            raise UploadTooLarge(
                f"{shown(file.name)} has more than {limits.max_cells} parts; hand in a shorter file."
            )
    else:
        cell = Cell(number=1, kind="markdown" if kind == "prose" else "code", source=text, language=language)
        document = Document(path=file.name, kind=kind, language=language, cells=(cell,))
    return document if note is None else document.model_copy(update={"notes": (note, *document.notes)})


def _check_upload(files: Sequence[UploadedFile], limits: Limits) -> None:
    if not files:
        raise EmptyUpload("No file was uploaded; choose at least one file.")
    if len(files) > limits.max_files:
        raise UploadTooLarge(
            f"{len(files)} files were uploaded, at most {limits.max_files} can be; "
            "hand in only your own work."
        )
    if sum(len(file.data) for file in files) > limits.max_upload_bytes:
        most = megabytes(limits.max_upload_bytes)
        raise UploadTooLarge(
            f"The upload is larger than {most} in all; clear large outputs and leave data files out."
        )


def _members(files: Sequence[UploadedFile], limits: Limits) -> tuple[list[UploadedFile], list[str]]:
    """All files to grade with unique safe names; a zip's in a folder of its name if there are several."""
    budget = Budget(limits.max_entries, limits.max_upload_bytes, limits.max_files)
    members: list[UploadedFile] = []
    notes: list[str] = []
    for file in files:
        name = _upload_name(file, limits)
        upload = UploadedFile(name, file.data)
        if not file.data:
            raise EmptyUpload(f"{shown(name)} is empty; save your work and upload it again.")
        if extension(name) == ".zip":
            unpacked = unpack(upload, limits, budget)
            folder = f"{without_extension(name)}/" if len(files) > 1 else ""
            members += [UploadedFile(folder + member.name, member.data) for member in unpacked.files]
            notes += unpacked.notes
            continue
        if not (limits.max_data_bytes and extension(name) in DATA):
            _kind(name)
        if len(file.data) > limits.max_file_bytes:
            most = megabytes(limits.max_file_bytes)
            raise UploadTooLarge(
                f"{shown(name)} is larger than {most}; clear its large outputs and upload it again."
            )
        members.append(upload)
    _check_members(members, limits)
    return members, notes


def _check_data(data: Sequence[UploadedFile], limits: Limits) -> list[str]:
    """What to say of them. Raises UploadTooLarge."""
    if sum(len(file.data) for file in data) > limits.max_data_bytes:
        most = megabytes(limits.max_data_bytes)
        raise UploadTooLarge(
            f"The data files are larger than {most} together; hand in your work without them, "
            "or with the part that it needs."
        )
    names = listed([file.name for file in data])
    return [f"Lies beside your work when it is run, and is not graded itself: {names}."] if data else []


def _check_members(members: list[UploadedFile], limits: Limits) -> None:
    if len(members) > limits.max_files:
        raise UploadTooLarge(
            f"The upload holds {len(members)} files to grade, at most {limits.max_files} can be; "
            "hand in only your own work."
        )
    seen: set[str] = set()
    for member in members:
        if same_name(member.name) in seen:
            raise DocumentError(
                f"Two files are called {shown(member.name)}; rename one of them and upload both again."
            )
        seen.add(same_name(member.name))


def _upload_name(file: UploadedFile, limits: Limits) -> str:
    name = upload_name(file.name)
    if not name:
        raise UnsupportedFile(f"A file without a name was uploaded; give it a name that ends in {ALLOWED}.")
    if len(name) > limits.max_name_chars:
        raise DocumentError(f"The name of {shown(name)} is too long; rename the file and upload it again.")
    return name


def _kind(name: str) -> tuple[Kind, str]:
    found = KINDS.get(extension(name))
    if found is None:
        raise UnsupportedFile(f"{shown(name)} cannot be graded; hand in {ALLOWED}.")
    return found
