"""Pages of dry runs and of examples."""

from __future__ import annotations

from app.experiments import dry_runs, examples

blueprints = (dry_runs.pages, examples.pages)
