"""Single sign-on: when sign-ins were linked that their owners linked before the column was there

Without it, a reset of the password would not lock them. The audit log has a line of each.

Revision: 0026_since_0002
Before it: 0025_since_0002
"""

from alembic import op

from migrations import online

revision = "0026_since_0002"
down_revision = "0025_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    postgresql = op.get_context().dialect.name == "postgresql"
    provider = "audit.detail ->> 'provider'" if postgresql else "json_extract(audit.detail, '$.provider')"
    linked = (
        "from audit where audit.action = 'sign_on.link' and audit.object = 'user:' || identities.user_id "
        f"and {provider} = identities.provider"
    )
    online.fill(
        "identities",
        "id",
        f"linked_at = (select max(audit.at) {linked})",
        f"linked_at is null and provider like 'oidc:%' and exists (select 1 {linked})",
    )


def downgrade() -> None:
    """To the one before it: nothing, as the column holds nothing else than before."""
