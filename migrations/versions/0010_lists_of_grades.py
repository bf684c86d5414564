"""Lists of grades: flags and points by criterion beside the report, and hand-ins of an assignment in order

Revision: 0010
Before it: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

FILLED = {
    "postgresql": """update grades set
        flag_text = coalesce((select left(string_agg(f->>'message', E'\\n'), 4000)
            from json_array_elements(report->'flags') f), ''),
        criterion_points = coalesce((select json_object_agg(c->>'criterion', c->'points')
            from json_array_elements(report->'criteria') c), '{}')""",
    "sqlite": """update grades set
        flag_text = coalesce((select substr(group_concat(json_extract(value, '$.message'), char(10)), 1, 4000)
            from json_each(report, '$.flags')), ''),
        criterion_points = coalesce((
            select json_group_object(json_extract(value, '$.criterion'), json_extract(value, '$.points'))
            from json_each(report, '$.criteria')), '{}')""",
}


def upgrade() -> None:
    """To this revision."""
    words = sa.Column("flag_text", sa.Text(), nullable=False, server_default=sa.text("''"))
    points = sa.Column("criterion_points", sa.JSON(), nullable=False, server_default=sa.text("'{}'"))
    op.add_column("grades", words)
    op.add_column("grades", points)
    op.execute(FILLED[op.get_bind().dialect.name])
    op.create_index("submissions_of_assignment", "submissions", ["assignment_id", "created_at", "id"])
    op.create_index("changes_of_bulk", "changes", ["bulk"])


def downgrade() -> None:
    """From this revision."""
    op.drop_index("changes_of_bulk", "changes")
    op.drop_index("submissions_of_assignment", "submissions")
    with op.batch_alter_table("grades") as batch:
        batch.drop_column("criterion_points")
        batch.drop_column("flag_text")
