"""Pages on which staff change, compare and release grades."""

from __future__ import annotations

from app.review import class_actions, comment_bank, edits, regrade_requests, second_marking, views

blueprints = (
    class_actions.pages,
    comment_bank.pages,
    edits.pages,
    regrade_requests.pages,
    second_marking.pages,
    views.pages,
)
