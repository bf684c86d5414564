"""Names hidden in evidence before it leaves the server; names of documents are mapped back after."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from grading.documents import Identity, pseudonymise_texts
from grading.domain.base_value import Value
from grading.domain.evidence import Evidence

_CODED = frozenset({"message_code", "params"})
V = TypeVar("V", bound=Value)
_WORDS = frozenset({"message", "name", "input", "expected", "got"})
"""Keys of evidence under which words of the submission may stand: messages, and what tests saw."""


def hide_names(evidence: Evidence, identity: Identity, paths: Mapping[str, str]) -> Evidence:
    """Evidence for a machine: messages without names, documents by the `paths` they are sent under."""
    return rename_documents(_map_messages(evidence, identity), paths)


def rename_documents(value: V, paths: Mapping[str, str]) -> V:
    """The value with the document of every location renamed; unknown names stay."""
    if all(old == new for old, new in paths.items()):
        return value
    content = _walk(value.model_dump(mode="json"), {"document"}, lambda path: paths.get(path, path))
    return type(value).model_validate(content)


def _map_messages(evidence: Evidence, identity: Identity) -> Evidence:
    messages: list[str] = []

    def collect(message: str) -> str:
        messages.append(message)
        return message

    content = _walk(_without_codes(evidence.model_dump(mode="json")), _WORDS, collect)
    hidden = iter(pseudonymise_texts(messages, identity))
    return Evidence.model_validate(_walk(content, _WORDS, lambda _: next(hidden)))


def _without_codes(content: Any) -> Any:
    """Without the codes and parameters of messages: machines read English, and parameters hold names, too."""
    if isinstance(content, dict):
        coded = _CODED if "hold" in content else {"code", *_CODED}
        return {name: _without_codes(value) for name, value in content.items() if name not in coded}
    return [_without_codes(value) for value in content] if isinstance(content, list) else content


def _walk(content: Any, keys: Collection[str], change: Callable[[str], str]) -> Any:
    """A copy of JSON content in which the string under each of these keys is changed."""
    if isinstance(content, dict):
        return {
            name: change(value) if name in keys and isinstance(value, str) else _walk(value, keys, change)
            for name, value in content.items()
        }
    if isinstance(content, list):
        return [_walk(value, keys, change) for value in content]
    return content
