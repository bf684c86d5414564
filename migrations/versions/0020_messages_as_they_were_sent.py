"""Messages as they were sent, receivers that are left alone, secrets of learning systems

Revision: 0020
Before it: 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0016"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
RENAMED = {
    "submission.graded": "submission.completed",
    "submission.released": "grade.released",
}


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "sent_messages",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("receiver", sa.String(length=40), nullable=False),
        sa.Column("message_id", sa.String(length=200), nullable=False),
        sa.Column("event", sa.String(length=100), nullable=False),
        sa.Column("type", sa.String(length=40), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("headers", sa.JSON(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_sent_messages_submission_id", "sent_messages", ["submission_id"])
    op.create_index("sent_messages_by_receiver", "sent_messages", ["receiver", "id"])
    op.create_index("sent_messages_by_time", "sent_messages", ["at"])
    op.create_table(
        "event_receivers",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("mark", sa.String(length=100), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("failing_since", TIME, nullable=True),
        sa.Column("paused_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "webhook_secrets",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("connection", sa.String(length=40), nullable=False),
        sa.Column("salt", sa.String(length=64), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", sa.String(length=100), nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_webhook_secrets_connection", "webhook_secrets", ["connection"])
    with op.batch_alter_table("inbound_webhooks") as batch_op:
        batch_op.add_column(sa.Column("answer", sa.JSON(), nullable=True))
    _rename(RENAMED)


def downgrade() -> None:
    """From this revision."""
    _rename({new: old for old, new in RENAMED.items()})
    with op.batch_alter_table("inbound_webhooks") as batch_op:
        batch_op.drop_column("answer")
    op.drop_table("webhook_secrets")
    op.drop_table("event_receivers")
    op.drop_table("sent_messages")


def _rename(names: dict[str, str]) -> None:
    """The types of events that are not told yet."""
    columns = (sa.column("id"), sa.column("kind"), sa.column("payload", sa.JSON()), sa.column("done_at"))
    outbox = sa.table("outbox", *columns)
    told = sa.or_(outbox.c.kind == "event", outbox.c.kind.like("to:%"))
    connection = op.get_bind()
    for row in connection.execute(sa.select(outbox).where(told, outbox.c.done_at.is_(None))).all():
        new = names.get(row.payload.get("type"))
        if new is not None:
            changed = {**row.payload, "type": new}
            connection.execute(outbox.update().where(outbox.c.id == row.id).values(payload=changed))
