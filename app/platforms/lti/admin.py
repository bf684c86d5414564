"""Learning platforms, for administrators: registering, accepting installations, linking courses."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.services import services
from grading.domain.errors import Conflict, GraderError
from grading.domain.permissions import Actor
from grading.integrations.lti.keys import new_key
from grading.integrations.lti.values import PlatformRefused
from grading.store.courses import courses
from grading.store.integrations.lti import launch, registrations
from grading.store.integrations.lti.registrations import NewPlatform

pages = Blueprint("lti_platforms", __name__, url_prefix="/platforms")
PLATFORM = "/<int(max=2147483647):platform_id>"


@pages.get("")
def listing() -> str:
    """All platforms, with what the tool must be called there."""
    return _listing()


@pages.post("")
def add() -> tuple[str, int] | Response:
    """Register a platform by hand."""
    actor = _administrator()
    try:
        with services().store.write() as store:
            registrations.register_platform(store, _form_platform(), actor.name)
    except GraderError as error:
        return _listing(problem=render_error(error)), error.status
    flash(_("Platform registered."))
    return redirect(url_for("lti_platforms.listing"), 303)


@pages.post("/link")
def link() -> str:
    """A link by which a platform registers itself once."""
    actor = _administrator()
    with services().store.write() as store:
        secret = registrations.make_ticket(store, actor.name)
    return _listing(link=f"{_base()}{url_for('lti_registration.register', ticket=secret)}")


@pages.post("/keys")
def rotate() -> Response:
    """Sign with a new key from now on."""
    actor, made = _administrator(), new_key()
    with services().store.write() as store:
        registrations.rotate_key(store, made, actor.name)
    flash(_("New key created. It signs from now on; the old public key stays published for one week."))
    return redirect(url_for("lti_platforms.listing"), 303)


@pages.get(PLATFORM)
def one(platform_id: int) -> str:
    """What is registered of a platform, to be changed; and what its removal would end."""
    return _one(platform_id)


@pages.post(PLATFORM)
def change(platform_id: int) -> tuple[str, int] | Response:
    """Say other things of a platform."""
    actor = _administrator()
    try:
        with services().store.write() as store:
            registrations.change_platform(store, platform_id, _form_platform(), actor.name)
    except (PlatformRefused, Conflict) as error:
        return _one(platform_id, render_error(error)), error.status
    flash(_("Saved."))
    return redirect(url_for("lti_platforms.listing"), 303)


@pages.post(f"{PLATFORM}/remove")
def remove(platform_id: int) -> Response:
    """Forget a platform; grades stay."""
    actor = _administrator()
    with services().store.write() as store:
        gone = registrations.remove_platform(store, platform_id, actor.name)
    flash(_("%(name)s removed. Accounts, submissions and grades are kept.", name=gone.name))
    return redirect(url_for("lti_platforms.listing"), 303)


@pages.post(f"{PLATFORM}/enabled")
def enabled(platform_id: int) -> Response:
    """Let a platform launch, or no longer."""
    actor = _administrator()
    with services().store.write() as store:
        registrations.set_enabled(store, platform_id, request.form.get("value") == "1", actor.name)
    flash(_("Saved."))
    return redirect(url_for("lti_platforms.listing"), 303)


@pages.post(f"{PLATFORM}/deployment")
def deployment(platform_id: int) -> Response:
    """Accept an installation of the tool."""
    actor, name = _administrator(), request.form.get("deployment", "").strip()
    with services().store.write() as store:
        registrations.load_platform(store, platform_id)
        if not 0 < len(name) <= 255 or not name.isprintable():
            raise GraderError(_("The deployment ID must have 1 to 255 characters."))
        registrations.accept_deployment(store, platform_id, name, actor.name)
    flash(_("Deployment accepted. Launches from it now work."))
    return redirect(url_for("lti_platforms.listing"), 303)


@pages.post("/courses/<int(max=2147483647):context_id>")
def course(context_id: int) -> Response:
    """Say which course here a platform's course is."""
    actor, chosen = _administrator(), request.form.get("course", "")
    with services().store.write() as store:
        number = int(chosen) if chosen.isdecimal() and len(chosen) < 10 else 0
        launch.link_course(store, context_id, number, actor.name)
    flash(_("Courses linked."))
    return redirect(url_for("lti_platforms.listing"), 303)


def _form_platform() -> NewPlatform:
    """What the form says."""

    def text(name: str) -> str:
        return request.form.get(name, "")[:2000]

    return NewPlatform(
        name=text("name"), issuer=text("issuer"), client_id=text("client_id"),
        authorize_url=text("authorize_url"), token_url=text("token_url"), jwks_url=text("jwks_url"),
        audience=text("audience"), origins=tuple(text("origins").split()),
        deployments=tuple(text("deployments").split()),
    )  # fmt: skip


def _administrator() -> Actor:
    actor = auth.actor()
    auth.require(actor, "administer")
    return actor


def _one(platform_id: int, problem: str = "") -> str:
    _administrator()
    with services().store.read() as store:
        found, stops = (
            registrations.load_registration(store, platform_id),
            registrations.load_removal_effects(store, platform_id),
        )
    fields = request.form if problem else {**vars(found), "origins": " ".join(found.origins)}
    return render_template(
        "lti/platform.html", platform_id=platform_id, found=found, said=fields, stops=stops, problem=problem
    )


def _base() -> str:
    return services().config.server.public_url.rstrip("/")


def _listing(problem: str = "", link: str = "") -> str:
    _administrator()
    with services().store.read_autocommit() as store:
        found, listed = registrations.list_platforms(store), courses.list_courses(store, None)
    return render_template(
        "lti/platforms.html", found=found, courses=listed, base=_base(), problem=problem, link=link,
        form=request.form,
    )  # fmt: skip
