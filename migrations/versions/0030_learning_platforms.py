"""Learning platforms by LTI 1.3

Revision: 0030
Before it: 0020
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0020"
branch_labels = None
depends_on = None


def _keys() -> None:
    op.create_table(
        "lti_keys",
        sa.Column("kid", sa.String(length=64), nullable=False),
        sa.Column("private", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("shown_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("kid"),
    )


def _platforms() -> None:
    op.create_table(
        "lti_platforms",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("issuer", sa.String(length=255), nullable=False),
        sa.Column("client_id", sa.String(length=255), nullable=False),
        sa.Column("authorize_url", sa.String(length=1000), nullable=False),
        sa.Column("token_url", sa.String(length=1000), nullable=False),
        sa.Column("jwks_url", sa.String(length=1000), nullable=False),
        sa.Column("audience", sa.String(length=1000), nullable=False),
        sa.Column("origins", sa.JSON(), nullable=False),
        sa.Column("jwks", sa.JSON(), nullable=False),
        sa.Column("jwks_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(length=100), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("issuer", "client_id"),
    )


def _contexts() -> None:
    op.create_table(
        "lti_contexts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("platform_id", sa.Integer(), nullable=False),
        sa.Column("deployment", sa.String(length=255), nullable=False),
        sa.Column("context", sa.String(length=255), nullable=False),
        sa.Column("course_id", sa.Integer(), nullable=True),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column("roster_url", sa.String(length=1000), nullable=False),
        sa.Column("line_items_url", sa.String(length=1000), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("roster_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("roster_error", sa.String(length=500), nullable=False),
        sa.ForeignKeyConstraint(["platform_id"], ["lti_platforms.id"]),
        sa.ForeignKeyConstraint(["course_id"], ["courses.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("platform_id", "deployment", "context"),
    )
    op.create_index("ix_lti_contexts_course_id", "lti_contexts", ["course_id"])


def _deployments() -> None:
    op.create_table(
        "lti_deployments",
        sa.Column("platform_id", sa.Integer(), nullable=False),
        sa.Column("deployment", sa.String(length=255), nullable=False),
        sa.Column("accepted", sa.Boolean(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["platform_id"], ["lti_platforms.id"]),
        sa.PrimaryKeyConstraint("platform_id", "deployment"),
    )


def _nonces() -> None:
    op.create_table(
        "lti_nonces",
        sa.Column("platform_id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["platform_id"], ["lti_platforms.id"]),
        sa.PrimaryKeyConstraint("platform_id", "hash"),
    )
    op.create_index("lti_nonces_until", "lti_nonces", ["until"])


def _tickets() -> None:
    op.create_table(
        "lti_tickets",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("course_id", sa.Integer(), nullable=True),
        sa.Column("created_by", sa.String(length=100), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["course_id"], ["courses.id"]),
        sa.PrimaryKeyConstraint("hash"),
    )


def _launches() -> None:
    op.create_table(
        "lti_launches",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("context_id", sa.Integer(), nullable=False),
        sa.Column("link", sa.String(length=255), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.ForeignKeyConstraint(["context_id"], ["lti_contexts.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_lti_launches_user_id", "lti_launches", ["user_id"])


def _links() -> None:
    op.create_table(
        "lti_links",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("context_id", sa.Integer(), nullable=False),
        sa.Column("link", sa.String(length=255), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("line_item", sa.String(length=1000), nullable=False),
        sa.Column("line_item_ours", sa.Boolean(), nullable=False),
        sa.Column("compared_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("compare_error", sa.String(length=500), nullable=False),
        sa.ForeignKeyConstraint(["context_id"], ["lti_contexts.id"]),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("context_id", "link"),
    )
    op.create_index("ix_lti_links_assignment_id", "lti_links", ["assignment_id"])


def _members() -> None:
    op.create_table(
        "lti_members",
        sa.Column("context_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["context_id"], ["lti_contexts.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("context_id", "user_id"),
    )
    op.create_index("lti_members_of_user", "lti_members", ["user_id"])


def _differences() -> None:
    op.create_table(
        "lti_differences",
        sa.Column("link_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("ours", sa.Float(), nullable=True),
        sa.Column("theirs", sa.Float(), nullable=True),
        sa.Column("max_points", sa.Float(), nullable=False),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["link_id"], ["lti_links.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("link_id", "user_id"),
    )
    op.create_index("lti_differences_of_user", "lti_differences", ["user_id"])


def _scores() -> None:
    op.create_table(
        "lti_scores",
        sa.Column("link_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("stamp", sa.DateTime(timezone=True), nullable=True),
        sa.Column("points", sa.Float(), nullable=True),
        sa.Column("max_points", sa.Float(), nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("busy_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(length=500), nullable=False),
        sa.Column("given_up", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["link_id"], ["lti_links.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("link_id", "user_id"),
    )
    op.create_index("lti_scores_of_user", "lti_scores", ["user_id"])


def _tries() -> None:
    op.create_table(
        "lti_tries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("link_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("stamp", sa.DateTime(timezone=True), nullable=True),
        sa.Column("points", sa.Float(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.String(length=500), nullable=False),
        sa.ForeignKeyConstraint(["link_id"], ["lti_links.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_lti_tries_user_id", "lti_tries", ["user_id"])
    op.create_index("lti_tries_of_link", "lti_tries", ["link_id", "id"])


def upgrade() -> None:
    """To this revision."""
    for make in (
        _keys,
        _platforms,
        _contexts,
        _deployments,
        _nonces,
        _tickets,
        _launches,
        _links,
        _members,
        _differences,
        _scores,
        _tries,
    ):
        make()


def downgrade() -> None:
    """From this revision."""
    for name in (
        "lti_tries",
        "lti_scores",
        "lti_differences",
        "lti_members",
        "lti_links",
        "lti_launches",
        "lti_tickets",
        "lti_nonces",
        "lti_deployments",
        "lti_contexts",
        "lti_platforms",
        "lti_keys",
    ):
        op.drop_table(name)
