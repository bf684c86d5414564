"""Pages in a frame of a learning platform: a path, a cookie and a policy of their own.

All that is shown in a frame lies below `/framed`: there the session's cookie is another one, for this path
only, signed for it, and kept apart by browsers for each platform. Whoever is signed in outside is nobody
here, and the other way round. Pages elsewhere can be put into no frame.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flask import Flask, g, render_template, request, session
from flask.sessions import SecureCookieSessionInterface
from flask_login import current_user
from sqlalchemy.exc import SQLAlchemyError

from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor
from grading.store.integrations.lti import launch, platforms

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PREFIX = "/framed"
MARK = "grader.framed"
COOKIE = "grader-framed"
ENTRANCES = ("/lti/login", "/lti/launch")
"""Where platforms send browsers: without a session, which begins there."""
NOT_HERE = frozenset(
    {"sign_in", "account", "tokens", "users", "operations", "erasing", "webhooks", "lti_platforms"}
    | {"api", "api_help"}
)
"""Parts of the site that a frame has no use of."""
ANYBODY = frozenset({"static", "bootstrap.static", "frame.language", "sign_in.leave"})


class Framed:
    """The app, with pages below `/framed` marked."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Take the prefix out of the path; addresses that are built have it again."""
        path = environ.get("PATH_INFO", "")
        if path.startswith(f"{PREFIX}/"):
            environ = {**environ, "PATH_INFO": path.removeprefix(PREFIX), MARK: True}
            environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "") + PREFIX
        elif path in ENTRANCES:
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


def install(app: Flask) -> None:
    """Let the app have frames."""
    app.wsgi_app = Framed(app.wsgi_app)  # type: ignore[method-assign]
    app.session_interface = Sessions()
    app.extensions["grader-limited"] = limited
    app.before_request(_only_what_belongs)
    app.context_processor(lambda: {"framed": framed()})


def _only_what_belongs() -> tuple[str, int] | None:
    """In a frame: nothing of the site's own, and nothing without a launch."""
    if not framed() or request.path in ENTRANCES or request.endpoint in ANYBODY:
        return None
    if request.blueprint in NOT_HERE:
        raise NotFound("There is nothing at this address.")
    if not current_user.is_authenticated:
        return render_template("lti/over.html"), 401
    return None


def limited(actor: Actor) -> Actor | None:
    """Somebody in a frame: no administrator, and in no course but those of the platform. Nothing: nobody.

    The one guard of frames: whoever asks for anything below `/framed` goes through it (`app.web.auth`).
    """
    if not framed():
        return actor
    platform_id = session.get("lti_platform")
    if not isinstance(platform_id, int):
        return None
    with services().store.look() as store:
        courses = launch.courses_of(store, platform_id)
    roles = {course: role for course, role in actor.roles.items() if course in courses}
    return Actor(actor.user_id, administrator=False, roles=roles)


def ancestors() -> str:
    """What may show this page in a frame, for its policy."""
    if not framed():
        return "'none'"
    if "ancestors" not in g:
        g.ancestors = "'none'"
        with suppress(SQLAlchemyError), services().store.look() as store:
            g.ancestors = " ".join(("'self'", *platforms.origins(store)))
    return str(g.ancestors)
