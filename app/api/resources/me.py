"""Who asks, and what their token may do."""

from __future__ import annotations

from pydantic import BaseModel, Field

from app.api.guards import anybody
from app.api.routes import Call, get
from grading.store.accounts import users


class Me(BaseModel):
    """The owner of the token."""

    user_id: int = Field(description="the ID of the account", examples=[17])
    id: str = Field(description="the sign-in name", examples=["ada"])
    administrator: bool = Field(description="whether they administer this server", examples=[False])
    scopes: list[str] = Field(description="the scopes of the token", examples=[["read", "submit"]])
    roles: dict[str, str] = Field(
        description="the role in each course, by course ID", examples=[{"3": "student"}]
    )


@get("/me", anybody("read"))
def me(call: Call) -> Me:
    """Get the owner of the token, its scopes, and the role in each course."""
    actor = call.actor
    return Me(
        user_id=actor.user_id,
        id=users.sign_in_name(call.session, actor.user_id),
        administrator=actor.administrator,
        scopes=sorted(actor.scopes or ()),
        roles={str(course): role for course, role in sorted(actor.roles.items())},
    )
