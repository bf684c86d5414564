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
from grading.domain.document import Cell, Document
from grading.domain.errors import DocumentError, EmptyUpload, UnsupportedFile, UploadTooLarge
from grading.domain.messages import define_message

ONLY_DATA = define_message(
    "upload.only_data", "The upload contains only data files; also submit %(allowed)s."
)
EMPTY_FILE = define_message("upload.empty_file", "%(name)s is empty; save your work and upload it again.")
FILE_TOO_LONG = define_message(
    "upload.file_too_long",
    "%(name)s is longer than %(most)s characters; load data from a file instead of pasting it.",
)
NO_FILE = define_message("upload.no_file", "No file was uploaded; choose at least one file.")
TOO_MANY_UPLOADED = define_message(
    "upload.too_many_uploaded",
    "You uploaded %(found)s files, but at most %(most)s are allowed; submit only your own work.",
)
UPLOAD_TOO_LARGE = define_message(
    "upload.upload_too_large",
    "The upload is larger than %(most)s in total; clear large outputs and remove data files.",
)
DATA_TOO_LARGE = define_message(
    "upload.data_too_large",
    "The data files are larger than %(most)s together; submit your work without them, "
    "or with the part that it needs.",
)
TOO_MANY_TO_GRADE = define_message(
    "upload.too_many_to_grade",
    "The upload contains %(found)s files to grade, but at most %(most)s are allowed; submit only "
    "your own work.",
)
NO_NAME = define_message(
    "upload.no_name", "A file without a name was uploaded; give it a name that ends in %(allowed)s."
)
NAME_TOO_LONG = define_message(
    "upload.name_too_long", "The name of %(name)s is too long; rename the file and upload it again."
)
NOT_GRADABLE = define_message(
    "upload.not_gradable", "%(name)s has a file type that cannot be graded; submit %(allowed)s."
)
TOO_MANY_PARTS = define_message(
    "upload.too_many_parts", "%(name)s has more than %(most)s parts; submit a shorter file."
)
FILE_TOO_LARGE = define_message(
    "upload.file_too_large", "%(name)s is larger than %(most)s; clear its large outputs and upload it again."
)
SAME_NAME = define_message(
    "upload.same_name", "Two files are called %(name)s; rename one of them and upload both again."
)


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
        raise EmptyUpload(ONLY_DATA(allowed=ALLOWED))
    return SubmittedFiles(tuple(members), documents, tuple(notes))


def read_document(file: UploadedFile, limits: Limits | None = None) -> Document:
    """Reads one file that is no zip. Raises DocumentError."""
    limits = limits or Limits()
    kind, language = _kind(file.name)
    if not file.data.strip():
        raise EmptyUpload(EMPTY_FILE(name=shown(file.name)))
    if kind == "notebook":
        return read_notebook(file.name, file.data, limits)
    text, note = decode(file.name, file.data)
    if not text.strip():
        raise EmptyUpload(EMPTY_FILE(name=shown(file.name)))
    if len(text) > limits.max_cell_chars:
        raise UploadTooLarge(FILE_TOO_LONG(name=shown(file.name), most=limits.max_cell_chars))
    ending = extension(file.name)
    if ending in (".rmd", ".qmd", ".md"):
        document = read_markdown(file.name, text) if ending == ".md" else read_chunks(file.name, text)
        if len(document.cells) > limits.max_cells:
            raise UploadTooLarge(TOO_MANY_PARTS(name=shown(file.name), most=limits.max_cells))
    else:
        cell = Cell(number=1, kind="markdown" if kind == "prose" else "code", source=text, language=language)
        document = Document(path=file.name, kind=kind, language=language, cells=(cell,))
    return document if note is None else document.model_copy(update={"notes": (note, *document.notes)})


def _check_upload(files: Sequence[UploadedFile], limits: Limits) -> None:
    if not files:
        raise EmptyUpload(NO_FILE)
    if len(files) > limits.max_files:
        raise UploadTooLarge(TOO_MANY_UPLOADED(found=len(files), most=limits.max_files))
    if sum(len(file.data) for file in files) > limits.max_upload_bytes:
        most = megabytes(limits.max_upload_bytes)
        raise UploadTooLarge(UPLOAD_TOO_LARGE(most=most))


def _members(files: Sequence[UploadedFile], limits: Limits) -> tuple[list[UploadedFile], list[str]]:
    """All files to grade with unique safe names; a zip's in a folder of its name if there are several."""
    budget = Budget(limits.max_entries, limits.max_upload_bytes, limits.max_files)
    members: list[UploadedFile] = []
    notes: list[str] = []
    for file in files:
        name = _upload_name(file, limits)
        upload = UploadedFile(name, file.data)
        if not file.data:
            raise EmptyUpload(EMPTY_FILE(name=shown(name)))
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
            raise UploadTooLarge(FILE_TOO_LARGE(name=shown(name), most=most))
        members.append(upload)
    _check_members(members, limits)
    return members, notes


def _check_data(data: Sequence[UploadedFile], limits: Limits) -> list[str]:
    """What to say of them. Raises UploadTooLarge."""
    if sum(len(file.data) for file in data) > limits.max_data_bytes:
        most = megabytes(limits.max_data_bytes)
        raise UploadTooLarge(DATA_TOO_LARGE(most=most))
    names = listed([file.name for file in data])
    return [f"Lies beside your work when it is run, and is not graded itself: {names}."] if data else []


def _check_members(members: list[UploadedFile], limits: Limits) -> None:
    if len(members) > limits.max_files:
        raise UploadTooLarge(TOO_MANY_TO_GRADE(found=len(members), most=limits.max_files))
    seen: set[str] = set()
    for member in members:
        if same_name(member.name) in seen:
            raise DocumentError(SAME_NAME(name=shown(member.name)))
        seen.add(same_name(member.name))


def _upload_name(file: UploadedFile, limits: Limits) -> str:
    name = upload_name(file.name)
    if not name:
        raise UnsupportedFile(NO_NAME(allowed=ALLOWED))
    if len(name) > limits.max_name_chars:
        raise DocumentError(NAME_TOO_LONG(name=shown(name)))
    return name


def _kind(name: str) -> tuple[Kind, str]:
    found = KINDS.get(extension(name))
    if found is None:
        raise UnsupportedFile(NOT_GRADABLE(name=shown(name), allowed=ALLOWED))
    return found
