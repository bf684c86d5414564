"""The part of config.toml about the web app, and about whom it speaks to."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator

from grading.config.machines import HttpUrl, Name
from grading.domain.ssrf import Allowed
from grading.domain.value import Value

EVERY_COURSE = "*"
BoundCourse = Annotated[str, StringConstraints(pattern=r"^(\*|[a-z0-9][a-z0-9-]*)$", max_length=64)]


class EventReceiver(Value):
    """Who is told what happens to submissions; its secret comes from the environment, see docs/events.md."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=30)]
    """Lower-case letters, digits and hyphens; unique."""
    url: Annotated[str, StringConstraints(pattern=r"^https?://[!-~]+$", max_length=2000)]
    """Where messages are posted to."""

    @field_validator("url")
    @classmethod
    def _with_host(cls, url: str) -> str:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:  # a port that is no number is a ValueError of its own
            raise ValueError("write an address such as https://lms.example/events")
        return url


class Canvas(Value):
    """A Canvas that is spoken to by its API; its token comes from the environment, see docs/canvas.md."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=30)]
    """Lower-case letters, digits and hyphens; unique. It stays as it is: people are known by it."""
    url: Annotated[str, StringConstraints(pattern=r"^https?://[!-~]+$", max_length=2000)]
    """Its address, such as `https://canvas.school.edu`."""
    feedback: bool = True
    """Released feedback is posted as a comment, too; else only a link to it."""

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


class Server(Value):
    """The web app: where it answers and what it accepts."""

    public_url: HttpUrl = "http://localhost:8080"
    """The address people use; with https, cookies are secure and one proxy is trusted."""
    host: str = "127.0.0.1"
    """The address the web app listens on."""
    port: int = Field(default=8080, ge=1, le=65535)
    """The port the web app listens on."""
    threads: int = Field(default=8, ge=1, le=64)
    """Requests answered at the same time."""
    max_upload_mb: int = Field(default=32, ge=1, le=1024)
    """The largest upload, and the most that may be unpacked from it, in MiB."""
    max_data_mb: int = Field(default=10, ge=0, le=1024)
    """Data files (.csv, .xlsx …) of one hand-in together, for its run, in MiB; 0 takes none."""
    max_files: int = Field(default=50, ge=1, le=1000)
    """Readable files of one hand-in after unpacking."""
    uploads_per_minute: int = Field(default=120, ge=1)
    """Uploads one person may send a minute, with all their tokens together."""
    api_per_minute: int = Field(default=1200, ge=1)
    """Requests to the HTTP API one person may send a minute, with all their tokens together."""
    release: Literal["at_once", "after_review"] = "after_review"
    """When students see grades, for assignments that do not say it themselves."""
    lms_connections: dict[Name, tuple[BoundCourse, ...]] = Field(default_factory=dict)
    """Who may post webhooks: for each connection the slugs of its courses, or `"*"` for every course."""
    event_receivers: tuple[EventReceiver, ...] = ()
    """Who is told what happens to submissions; a table each, `[[server.event_receivers]]`."""
    canvases: tuple[Canvas, ...] = ()
    """Where hand-ins are pulled from and grades posted to; a table each, `[[server.canvases]]`."""
    canvas_every_min: int = Field(default=10, ge=1, le=1440)
    """How often people and hand-ins are pulled from there, in minutes."""
    outside_allowed: tuple[str, ...] = ()
    """Hosts and networks beside the public internet that this system may speak to, such as `10.0.0.0/8`."""

    @property
    def allowed(self) -> Allowed:
        """The same, for `grading.integrations.http_client`."""
        return Allowed.of(self.outside_allowed)

    def admits(self, connection: str, course: str) -> bool:
        """Whether messages of a connection may concern a course, by its slug."""
        bound = self.lms_connections.get(connection, ())
        return EVERY_COURSE in bound or course in bound

    @field_validator("lms_connections", mode="before")
    @classmethod
    def _with_courses(cls, connections: object) -> object:
        if isinstance(connections, list | tuple):
            raise ValueError(
                "name the courses of each connection in a table [server.lms_connections], "
                'such as canvas = ["data-101"]; ["*"] is every course'
            )
        return connections

    @field_validator("outside_allowed")
    @classmethod
    def _readable(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        Allowed.of(entries)
        return entries

    @field_validator("canvases")
    @classmethod
    def _one_canvas_each(cls, canvases: tuple[Canvas, ...]) -> tuple[Canvas, ...]:
        for what in ("name", "url"):
            if len({getattr(one, what) for one in canvases}) < len(canvases):
                raise ValueError(f"two of them have the same {what}")
        return canvases

    @field_validator("event_receivers")
    @classmethod
    def _one_name_each(cls, receivers: tuple[EventReceiver, ...]) -> tuple[EventReceiver, ...]:
        names = [receiver.name for receiver in receivers]
        if len(set(names)) < len(names):
            raise ValueError("two receivers have the same name; names must be unique")
        return receivers
