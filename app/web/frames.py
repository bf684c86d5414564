"""Pages in a frame of another system: a path, a cookie and a policy of their own.

All that is shown in a frame lies below `/framed`: there the session's cookie is another one, for this path
only, signed for it, and kept apart by browsers for each platform. Whoever is signed in outside is nobody
here, and the other way round. Pages elsewhere can be put into no frame.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

from flask import Flask, current_app, g, render_template, request
from flask.sessions import SecureCookieSessionInterface
from flask_login import current_user
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.web.platform_pages import platform_pages
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor

NO_SUCH_ADDRESS = define_message("pages.no_such_address", "This page does not exist.")

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PREFIX = "/framed"
MARK = "grader.framed"
COOKIE = "grader-framed"
NOT_HERE = frozenset(
    {"sign_in", "sign_on", "sign_on_links", "second_factor"}
    | {"profile", "users", "operations", "webhooks", "api", "api_docs"}
)
"""Parts of the site that a frame has no use of."""
ANYBODY = frozenset({"static", "bootstrap.static", "frame.language", "frame.session_state", "sign_in.leave"})


class FrameHost(Protocol):
    """A system that shows pages in frames."""

    @property
    def entrances(self) -> tuple[str, ...]:
        """Paths to which it sends browsers: without a session, which begins there."""

    def courses(self, store: Session) -> frozenset[int] | None:
        """The courses of whoever signed in this session; nothing where nobody did."""

    def origins(self, store: Session) -> tuple[str, ...]:
        """Who may show pages in a frame, for the policy."""


class Framed:
    """The app, with pages below `/framed` marked."""

    def __init__(self, app: WSGIApplication, entrances: tuple[str, ...]) -> None:
        self._app = app
        self._entrances = entrances

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Take the prefix out of the path; addresses that are built have it again."""
        path = environ.get("PATH_INFO", "")
        if path.startswith(f"{PREFIX}/"):
            environ = {**environ, "PATH_INFO": path.removeprefix(PREFIX), MARK: True}
            environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "") + PREFIX
        elif path in self._entrances:
            environ = {**environ, MARK: True, "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + PREFIX}
        return self._app(environ, start_response)


def framed() -> bool:
    """Whether this request is for a frame."""
    return bool(request.environ.get(MARK))


class Sessions(SecureCookieSessionInterface):
    """The ordinary session, and that of frames, whose cookies are of no use for each other."""

    def get_cookie_name(self, app: Flask) -> str:
        """Its name."""
        return f"__Secure-{COOKIE}" if framed() else super().get_cookie_name(app)

    def get_cookie_path(self, app: Flask) -> str:
        """Where it is sent."""
        return PREFIX if framed() else super().get_cookie_path(app)

    def get_cookie_samesite(self, app: Flask) -> str | None:
        """Whether it is sent in frames."""
        return "None" if framed() else super().get_cookie_samesite(app)

    def get_cookie_secure(self, app: Flask) -> bool:
        """A cookie for frames must be."""
        return framed() or super().get_cookie_secure(app)

    def get_cookie_partitioned(self, app: Flask) -> bool:
        """Whether there is one for each site around it."""
        return framed()

    def get_signing_serializer(self, app: Flask) -> Any:
        """Each kind has a signature of its own."""
        made = super().get_signing_serializer(app)
        if made is not None and framed():
            made = made.__class__(
                app.secret_key or "", salt=f"{self.salt}-framed", serializer=self.serializer,
                signer_kwargs={"key_derivation": self.key_derivation, "digest_method": self.digest_method},
            )  # fmt: skip
        return made


def install(app: Flask, host: FrameHost) -> None:
    """Let the app have frames that this system shows."""
    app.extensions["grader-frames"] = host
    app.wsgi_app = Framed(app.wsgi_app, host.entrances)  # type: ignore[method-assign]
    app.session_interface = Sessions()
    app.extensions["grader-limited"] = limited
    app.before_request(_only_what_belongs)
    app.context_processor(lambda: {"framed": framed()})


def _only_what_belongs() -> tuple[str, int] | None:
    """In a frame: nothing of the site's own, and nothing without a launch."""
    if not framed() or request.path in _host().entrances or request.endpoint in ANYBODY:
        return None
    if request.blueprint in NOT_HERE or request.blueprint in _administration():
        raise NotFound(NO_SUCH_ADDRESS)
    if not current_user.is_authenticated:
        return render_template("web/session_over.html"), 401
    return None


def _administration() -> frozenset[str]:
    """Blueprints for administrators of learning platforms."""
    entries = (entry for pages in platform_pages().values() for entry in pages.navigation)
    return frozenset().union(*(entry.below for entry in entries))


def limited(actor: Actor) -> Actor | None:
    """Somebody in a frame: no administrator, and in no course but those of the platform. Nothing: nobody.

    The one guard of frames: whoever asks for anything below `/framed` goes through it (`app.web.auth`).
    """
    if not framed():
        return actor
    with services().store.read_autocommit() as store:
        courses = _host().courses(store)
    if courses is None:
        return None
    roles = {course: role for course, role in actor.roles.items() if course in courses}
    return Actor(actor.user_id, administrator=False, roles=roles)


def ancestors() -> str:
    """What may show this page in a frame, for its policy."""
    if not framed():
        return "'none'"
    if "ancestors" not in g:
        g.ancestors = "'none'"
        with suppress(SQLAlchemyError), services().store.read_autocommit() as store:
            g.ancestors = " ".join(("'self'", *_host().origins(store)))
    return str(g.ancestors)


def _host() -> FrameHost:
    return cast(FrameHost, current_app.extensions["grader-frames"])
