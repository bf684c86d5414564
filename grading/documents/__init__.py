"""Readers of submissions: files to documents, the student's own lines, pseudonyms.

What a document shows of a criterion belongs to grading.checks.
"""

from grading.documents.files import ALLOWED, ALLOWED_FILES, SubmittedFiles, UploadedFile
from grading.documents.limits import Limits
from grading.documents.notebook import in_language
from grading.documents.pseudonym import Identity, pseudonym_for, pseudonymise, pseudonymise_texts
from grading.documents.reading import read, read_document
from grading.documents.starter import set_apart
from grading.documents.text import hidden_characters

__all__ = [
    "ALLOWED",
    "ALLOWED_FILES",
    "SubmittedFiles",
    "Identity",
    "Limits",
    "UploadedFile",
    "hidden_characters",
    "in_language",
    "pseudonym_for",
    "pseudonymise",
    "pseudonymise_texts",
    "read",
    "read_document",
    "set_apart",
]
