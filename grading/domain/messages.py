"""Coded messages: a code and parameters, from which a gettext catalogue makes the sentence.

A module declares what it says at its top level, and makes values of it where something is to be said:

    TOO_FEW = define_message("check.words.too_few", "%(found)s of at least %(wanted)s words")
    LINES = define_plural("count.lines", "%(count)s line", "%(count)s lines")

    TOO_FEW(found=3, wanted=LINES(count=5))

`pybabel extract -k define_message:2 -k define_plural:2,3` finds the English texts. A `Message` may come from
another process, which may have another version and is not trusted: an unknown code keeps the English sentence
that came with it, and parameters are only ever filled in, never taken as a format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from gettext import NullTranslations
from typing import Annotated, Any, Union

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

MAX_TEXT = 2000
"""Characters of a text among the parameters; what is longer is cut."""
MAX_MESSAGE = 8000
"""Characters of a rendered sentence; what is longer is cut."""
MAX_PARAMS = 16
MAX_ITEMS = 100
"""Of a list among the parameters."""
MAX_DEPTH = 8
"""Of messages in messages."""

_CODE = r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*"
_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%")
_ENGLISH = NullTranslations()
_KNOWN: dict[str, MessageType] = {}

Item = Union[bool, int, float, str, "Message"]
Param = Union[bool, int, float, str, "Message", tuple[Item, ...]]
"""What a parameter may be: a list is written with commas."""


def _shallow(params: Any) -> Any:
    """Before anything else is looked at: validating what is deep takes long."""
    level = [params]
    for _ in range(2 * MAX_DEPTH + 2):
        level = [inner for one in level for inner in _inside(one)]
        if len(level) > MAX_PARAMS * MAX_ITEMS:
            break
        if not level:
            return params
    raise ValueError(f"messages are nested more than {MAX_DEPTH} deep, or hold too much")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Message):
        return value.params.values()
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _bounded(params: dict[str, Param]) -> dict[str, Param]:
    if len(params) > MAX_PARAMS:
        raise ValueError(f"more than {MAX_PARAMS} parameters")
    return {_cut(name, 80): _bounded_value(value) for name, value in params.items()}


def _bounded_value(value: Param) -> Param:
    if isinstance(value, tuple):
        return tuple(_cut(one, MAX_TEXT) if isinstance(one, str) else one for one in value[:MAX_ITEMS])
    return _cut(value, MAX_TEXT) if isinstance(value, str) else value


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


Params = Annotated[dict[str, Param], BeforeValidator(_shallow), AfterValidator(_bounded)]
"""Parameters by name, with their sizes bounded."""


class Message(BaseModel):
    """Something that is said: which sentence, and what is filled in.

    `message` is the sentence in English, for programs and for whoever does not know the code. A message
    without a code is a sentence that nobody translates.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    code: str = Field(default="", max_length=120)
    params: Params = Field(default_factory=dict)
    message: Annotated[str, AfterValidator(lambda text: _cut(text, MAX_MESSAGE))] = ""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class MessageType:
    """A sentence that is declared once, with `%(name)s` for its parameters; `many` where it has a plural.

    The plural is chosen by the parameter `count`.
    """

    code: str
    text: str
    many: str = ""

    @cached_property
    def names(self) -> frozenset[str]:
        """The parameters it takes."""
        found = {m[1] for text in (self.text, self.many) for m in _PLACEHOLDER.finditer(text) if m[1]}
        return frozenset(found | {"count"} if self.many else found)

    def __call__(self, **params: Any) -> Message:
        """The message with these parameters; other values than a `Param` are filled in as text.

        Raises TypeError where parameters are missing or unknown.
        """
        if params.keys() != self.names:
            raise TypeError(f"{self.code} takes {sorted(self.names)}, not {sorted(params)}")
        values = {name: _as_param(value) for name, value in params.items()}
        made = Message(code=self.code, params=values)
        return made.model_copy(update={"message": _cut(render(made), MAX_MESSAGE)})

    def translated(self, translations: NullTranslations, params: Mapping[str, Param]) -> str:
        """The sentence with its placeholders, in the form for the count there is."""
        count = params.get("count")
        if not self.many:
            return translations.gettext(self.text)
        return translations.ngettext(self.text, self.many, count if isinstance(count, int) else 2)


def _as_param(value: Any) -> Param:
    if isinstance(value, bool | int | float | str | Message):
        return value
    if isinstance(value, MessageType):
        return value()
    if isinstance(value, tuple | list):
        return tuple(_as_item(one) for one in value)
    return str(value)


def _as_item(value: Any) -> Item:
    found = _as_param(value)
    return str(found) if isinstance(found, tuple) else found


def define_message(code: str, text: str) -> MessageType:
    """Declare a sentence. Raises ValueError where the code is taken or the text has other placeholders."""
    return _declared(MessageType(code, text))


def define_plural(code: str, one: str, many: str) -> MessageType:
    """Declare a sentence with a form for one and one for many; its parameter `count` decides."""
    return _declared(MessageType(code, one, many))


def _declared(kind: MessageType) -> MessageType:
    if not re.fullmatch(_CODE, kind.code):
        raise ValueError(f"not a code of a message: {kind.code!r}")
    if any("%" in _PLACEHOLDER.sub("", text) for text in (kind.text, kind.many)):
        raise ValueError(f"{kind.code}: only %(name)s and %% may stand in a message")
    if _KNOWN.setdefault(kind.code, kind) != kind:
        raise ValueError(f"two messages have the code {kind.code}")
    return kind


def known_messages() -> Mapping[str, MessageType]:
    """All that were declared by the modules imported so far, by code."""
    return _KNOWN


def verbatim(text: str) -> Message:
    """What somebody else said, such as another program or an older version: shown as it is."""
    return Message(message=text)


def _plain(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def render(
    said: Message, translations: NullTranslations = _ENGLISH, number: Callable[[float], str] = _plain
) -> str:
    """The sentence in the language of these translations; `number` writes numbers with decimals.

    Where the code is not known here, or its parameters do not fit, the English that came with it.
    """
    kind = _KNOWN.get(said.code)
    if kind is None or not kind.names <= said.params.keys():
        return said.message or said.code
    values = {name: _rendered(value, translations, number) for name, value in said.params.items()}
    return kind.translated(translations, said.params) % values


def _rendered(value: Param, translations: NullTranslations, number: Callable[[float], str]) -> str:
    if isinstance(value, tuple):
        return ", ".join(_rendered(one, translations, number) for one in value)
    if isinstance(value, Message):
        return render(value, translations, number)
    return number(value) if isinstance(value, float) else str(value)


Message.model_rebuild()
