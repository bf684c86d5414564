"""What was typed into a form whose session ended: it is kept, signed, until its author signs in again."""

from __future__ import annotations

from dataclasses import dataclass

from flask import current_app, render_template, request
from flask_login import current_user
from itsdangerous import BadData, URLSafeTimedSerializer

from app.web.security import safe_next

MOST_BYTES = 512 * 1024
"""Of what was typed; more is not kept."""
KEPT_S = 3600
SECRETS = frozenset({"password", "again", "old", "kept", "one_time_code"})
"""Fields whose form is never kept."""
TOKEN_SALT = "wtf-csrf-token"  # noqa: S105 - that of Flask-WTF, whose tokens say to whom a form was given
FORM_SALT = "kept-form"


@dataclass(frozen=True)
class KeptForm:
    """A form that was not sent."""

    user_id: int
    """Who typed it."""
    path: str
    fields: tuple[tuple[str, str], ...]
    files: bool
    """There were files, which cannot be kept."""

    @property
    def texts(self) -> tuple[str, ...]:
        """What consists of words, to be shown and copied."""
        return tuple(text for _name, text in self.fields if len(text.split()) > 1)

    @property
    def own(self) -> bool:
        """Whether its author is signed in."""
        return bool(current_user.is_authenticated) and current_user.actor.user_id == self.user_id

    @property
    def signed(self) -> str:
        """As a hidden field of a sign-in form."""
        return str(_signer(FORM_SALT).dumps([self.user_id, self.path, self.fields, self.files]))


def of_request() -> KeptForm | None:
    """The form that is sent; None where its token does not say by whom, with passwords, or too large."""
    form = request.form
    user_id = _author(form.get("csrf_token", ""))
    fields = tuple((name, text) for name, text in form.items(multi=True) if name != "csrf_token")
    size = sum(len(text.encode()) for _name, text in fields)
    path = request.script_root + request.full_path.rstrip("?")
    if user_id is None or size > MOST_BYTES or not SECRETS.isdisjoint(form) or safe_next(path) is None:
        return None
    return KeptForm(user_id, path, fields, any(file.filename for file in request.files.values()))


def of_sign_in() -> KeptForm | None:
    """The form that a sign-in form brings along; None where it has none, or an old or a changed one."""
    try:
        loaded = _signer(FORM_SALT).loads(request.form.get("kept", ""), max_age=KEPT_S)
    except BadData:
        return None
    user_id, path, fields, files = loaded
    if safe_next(path) is None:
        return None
    return KeptForm(user_id, path, tuple((name, text) for name, text in fields), files)


def page(kept: KeptForm) -> str:
    """What was typed, to be sent by its author, who signs in first if need be."""
    return render_template("web/kept_form.html", kept=kept)


def _author(token: str) -> int | None:
    """Whose session a form's token is from; sessions of `auth` have tokens that say so."""
    try:
        user_id = str(_signer(TOKEN_SALT).loads(token)).partition(".")[0]
    except BadData:
        return None
    return int(user_id) if user_id.isdecimal() and len(user_id) < 10 else None


def _signer(salt: str) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(current_app.secret_key or "", salt=salt)
