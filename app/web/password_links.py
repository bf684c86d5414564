"""Showing a link to set a password, once."""

from __future__ import annotations

from flask import render_template, url_for
from sqlalchemy.orm import Session

from app.web.services import services
from grading.domain.permissions import Actor
from grading.store.courses import invitations, roster


def address(secret: str) -> str:
    """The link for people, by the address in the configuration, never by what a request says."""
    base = services().config.server.public_url.rstrip("/")
    return f"{base}{url_for('sign_in.follow', secret=secret)}"


def page(session: Session, user_id: int, actor: Actor, back: str, course_id: int | None = None) -> str:
    """Make a link for somebody and show it."""
    made = invitations.create_links(session, [user_id], actor.name, actor.user_id, course_id)
    person = roster.load_person(session, user_id, "")
    return render_template("web/password_link.html", person=person, link=address(made[user_id]), back=back)
