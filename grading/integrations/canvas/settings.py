"""What config.toml says of Canvas, below `[server]`."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator

from grading.domain.base_value import Value


class Canvas(Value):
    """A Canvas connected by its API; its token comes from the environment.

    See docs/how-to/administrators/canvas.md.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=30)]
    """Lowercase letters, digits and hyphens; unique. Never change it: it identifies people."""
    url: Annotated[str, StringConstraints(pattern=r"^https?://[!-~]+$", max_length=2000)]
    """Its address, such as `https://canvas.school.edu`."""
    feedback: bool = True
    """Post released feedback as a comment; otherwise only a link to it."""

    @property
    def token_variable(self) -> str:
        """The variable of the environment that holds its token."""
        return f"GRADER_CANVAS_{self.name.upper().replace('-', '_')}_TOKEN"

    @field_validator("url")
    @classmethod
    def _address(cls, url: str) -> str:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0 or parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError("write the address of the whole Canvas, such as https://canvas.school.edu")
        return url.rstrip("/")


class Settings(Value):
    """The keys of `[server]` that Canvas adds."""

    canvases: tuple[Canvas, ...] = ()
    """Where submissions are pulled from and grades posted to; a table each, `[[server.canvases]]`."""
    canvas_every_min: int = Field(default=10, ge=1, le=1440)
    """How often people and submissions are pulled from each Canvas, in minutes."""

    @field_validator("canvases")
    @classmethod
    def _one_canvas_each(cls, canvases: tuple[Canvas, ...]) -> tuple[Canvas, ...]:
        for what in ("name", "url"):
            if len({getattr(one, what) for one in canvases}) < len(canvases):
                raise ValueError(f"two of them have the same {what}")
        return canvases
