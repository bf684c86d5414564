"""How mail leaves: the part `[mail]` of config.toml. Without a url no mail is sent."""

from __future__ import annotations

from email.errors import HeaderParseError
from email.headerregistry import Address
from email.utils import parseaddr
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import Field, StringConstraints, field_validator, model_validator

from grading.domain.base_value import Value

PORTS = {"smtp": 25, "smtps": 465}


class Mail(Value):
    """Email to people who want one when a result is available; GRADER_MAIL_PASSWORD is the password."""

    url: Annotated[str, StringConstraints(pattern=r"^(smtps?://[!-~]+)?$", max_length=500)] = ""
    """`smtp://user@host:587` (with STARTTLS) or `smtps://user@host`; empty sends none."""
    sender: str = Field(default="", max_length=200)
    """The sender, such as `Grader <grader@school.example>`."""

    @field_validator("url")
    @classmethod
    def _no_password(cls, url: str) -> str:
        if not url:
            return url
        parts = urlsplit(url)
        if parts.password is not None:
            raise ValueError("leave the password out; it comes from GRADER_MAIL_PASSWORD")
        if not parts.hostname or parts.port == 0 or parts.path not in ("", "/"):
            raise ValueError("write an address such as smtp://user@mail.school.example:587")
        return url

    @field_validator("sender")
    @classmethod
    def _one_address(cls, sender: str) -> str:
        if sender and not (sender.isprintable() and valid_address(parseaddr(sender)[1])):
            raise ValueError("write an address such as Grader <grader@school.example>")
        return sender

    @model_validator(mode="after")
    def _from_somebody(self) -> Mail:
        if self.url and not self.sender:
            raise ValueError("sender: say from whom mail comes, such as Grader <grader@school.example>")
        return self

    @property
    def on(self) -> bool:
        """Whether mail is sent."""
        return bool(self.url)

    @property
    def host(self) -> str:
        """Of the server."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Of the server."""
        parts = urlsplit(self.url)
        return parts.port or PORTS[parts.scheme]

    @property
    def encrypted(self) -> bool:
        """From the first byte on; else with STARTTLS."""
        return self.url.startswith("smtps:")

    @property
    def user(self) -> str:
        """Whom to sign in as; empty: not at all."""
        return unquote(urlsplit(self.url).username or "")


def valid_address(text: str) -> bool:
    """Whether mail can be sent there: one plain address, without anything that could become a header."""
    if not text.isascii() or not text.isprintable() or text.count("@") != 1 or len(text) > 200:
        return False
    try:
        parsed = Address(addr_spec=text)
    except (HeaderParseError, ValueError, IndexError):
        return False
    return bool(parsed.username and parsed.domain) and " " not in text and "," not in text
