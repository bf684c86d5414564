"""Pages of dry runs, in which changes of a rubric are tried, and of examples from corrections.

The rubric itself belongs to app.assignments.
"""

from __future__ import annotations

from app.experiments import dry_runs, examples

blueprints = (dry_runs.pages, examples.pages)
