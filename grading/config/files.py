"""Where files are stored: the part `[files]` of config.toml. Without a bucket all are in the database."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, StringConstraints, ValidationInfo, field_validator

from grading.config.redis_url import on_loopback
from grading.domain.base_value import Value
from grading.domain.errors import ConfigError

LEAST_KB = 64
"""Smaller files are never moved: an object costs a request, a row does not."""
KEY_ID, SECRET = "GRADER_FILES_KEY_ID", "GRADER_FILES_SECRET"


class Keys(NamedTuple):
    """Credentials of the object store."""

    key_id: str
    secret: str


class Files(Value):
    """An S3-compatible store for large files; GRADER_FILES_KEY_ID and GRADER_FILES_SECRET are its keys."""

    bucket: Annotated[str, StringConstraints(pattern=r"^([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])?$")] = ""
    """Bucket of the object store, which must exist; empty: all files are in the database."""
    endpoint: Annotated[str, StringConstraints(pattern=r"^(https?://[!-~]+)?$", max_length=500)] = ""
    """Address of the object store, such as `https://s3.school.example`; empty: Amazon S3 of the region."""
    region: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")] = "us-east-1"
    """Region of the bucket; stores that have none take any."""
    prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$")] = "grader"
    """What all keys in the bucket begin with; one installation each."""
    larger_than_kb: int = Field(default=256, ge=0)
    """Files of submissions of more KiB are moved to the object store, minutes after they were submitted; at
    least 64, and 0 moves none."""
    ca_file: str = ""
    """The certificate authority of the object store, as a PEM file; by default, those this computer
    trusts."""
    _keys: Keys | None = PrivateAttr(default=None)

    @field_validator("endpoint")
    @classmethod
    def _checked(cls, url: str) -> str:
        if not url:
            return url
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0 or "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("write an address such as https://s3.school.example, without keys")
        if parts.path not in ("", "/"):
            raise ValueError("leave the path out; the bucket has a key of its own")
        if parts.scheme == "http" and not on_loopback(url):
            raise ValueError("students' work would be sent unencrypted; write https://, and name its ca_file")
        if _is_link_local(parts.hostname):
            raise ValueError("this address is of a cloud's inner services, not of an object store")
        return url.rstrip("/")

    @field_validator("prefix")
    @classmethod
    def _inside(cls, prefix: str) -> str:
        if {".", ".."} & set(prefix.split("/")):
            raise ValueError("a part of it is . or ..; write a name such as grader")
        return prefix

    @field_validator("larger_than_kb")
    @classmethod
    def _not_small(cls, size: int) -> int:
        if 0 < size < LEAST_KB:
            raise ValueError(f"at least {LEAST_KB}, or 0 to move none")
        return size

    @field_validator("ca_file")
    @classmethod
    def _is_there(cls, path: str, _info: ValidationInfo) -> str:
        if path and not Path(path).is_file():
            raise ValueError(f"the certificate authority's file {path} is not there")
        return path

    @property
    def used(self) -> bool:
        """Whether there is an object store."""
        return bool(self.bucket)

    @property
    def moves(self) -> bool:
        """Whether files are moved to it."""
        return self.used and self.larger_than_kb > 0

    @property
    def address(self) -> str:
        """Of the object store."""
        return self.endpoint or f"https://s3.{self.region}.amazonaws.com"

    @property
    def keys(self) -> Keys:
        """The credentials. Raises ConfigError when they were not in the environment."""
        if self._keys is None:
            raise ConfigError(f"files.bucket: set {KEY_ID} and {SECRET} in the environment.")
        return self._keys

    def take_keys(self, environ: Mapping[str, str]) -> None:
        """Remember the credentials; they are no part of the value, so nothing prints or sends them."""
        key_id, secret = environ.get(KEY_ID, ""), environ.get(SECRET, "")
        self._keys = Keys(key_id, secret) if key_id and secret else None


def _is_link_local(host: str) -> bool:
    try:
        return ip_address(host).is_link_local
    except ValueError:
        return False
