"""Which tests need SQLite beside PostgreSQL only in `make soak`.

They hold rules that are the same on both. PostgreSQL refuses more and lets more happen at once, so
`make test` has them there. What SQLite alone would break it finds elsewhere: nearly all pages and the API
are tested on SQLite (tests/integration/webapp.py), the systems of tests/faults and tests/e2e grade on it;
the others in integration/store, privacy/test_backup.py, server/test_outbox.py and
grades/test_grades_intact.py have both.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

FILES = tuple(
    f"tests/integration/{name}.py"
    for name in (
        "accounts/test_second_factor",
        "accounts/test_sign_in_attempts",
        "api/test_resources",
        "assignments/test_versions",
        "broker/test_bad_neighbours",
        "broker/test_lost_and_stuck",
        "courses/test_pages",
        "experiments/test_dry_runs",
        "experiments/test_examples",
        "gradebook/test_pages",
        "grades/test_counts",
        "integrations/test_canvas",
        "integrations/test_mail",
        "integrations/test_webhook_events",
        "integrations/test_webhooks",
        "lti/test_lti",
        "operations/test_pages",
        "privacy/test_erasure",
        "privacy/test_retention",
        "privacy/test_stored_prompts",
        "results/test_executions",
        "results/test_pages",
        "review/test_pages",
        "rounds/test_fair_order",
        "rounds/test_lifecycle",
        "rounds/test_queue_places",
        "rounds/test_retry",
        "sandbox/test_pool",
        "sandbox/test_prechecks",
        "sandbox/test_sandbox_runs",
        "server/test_admit",
        "server/test_lost_runs",
        "server/test_pseudonyms",
        "server/test_sweeper",
        "server/test_uniqueness",
        "similarity/test_pages",
        "statistics/test_pages",
        "store/test_object_store",
        "submissions/test_submit_pages",
        "submissions/test_waiting_pages",
        "trust/test_confidence",
        "trust/test_human_marks",
        "trust/test_model_trials",
        "trust/test_questions",
        "trust/test_second_opinions",
        "trust/test_shadow_runs",
        "trust/test_stress_tests",
    )
)


def mark_repeated(items: Iterable[pytest.Item]) -> None:
    """Leave their tests on SQLite to the soak."""
    for item in items:
        values = getattr(item, "callspec", None)
        on_sqlite = values is not None and values.params.get("databases") == "sqlite"
        if on_sqlite and item.nodeid.partition("::")[0] in FILES:
            item.add_marker(pytest.mark.soak)
