"""The prompts that models were sent, and what a course speaks and lets its students see

Revision: 0006
Before it: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def settings() -> list[sa.Column]:
    return [
        sa.Column("spoken_language", sa.String(length=40), nullable=False, server_default="English"),
        sa.Column("show_draft", sa.Boolean(), nullable=False, server_default=sa.false()),
    ]


def upgrade() -> None:
    """To this revision. Earlier runs have no prompt; earlier versions are English and show no draft."""
    for column in settings():
        op.add_column("rubric_versions", column)
    op.create_table(
        "system_messages",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256"),
    )
    op.create_table(
        "prompts",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("system_sha256", sa.String(length=64), nullable=True),
        sa.Column("user_message", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"]),
        sa.ForeignKeyConstraint(["system_sha256"], ["system_messages.sha256"]),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_index("ix_prompts_system_sha256", "prompts", ["system_sha256"])


def downgrade() -> None:
    """From this revision."""
    op.drop_table("prompts")
    op.drop_table("system_messages")
    with op.batch_alter_table("rubric_versions") as batch:
        for column in settings():
            batch.drop_column(column.name)
