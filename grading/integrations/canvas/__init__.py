"""Canvas by its REST API, for schools that cannot use LTI.

Links and scores in the database belong to grading.store.integrations.canvas.
"""

from __future__ import annotations

from grading.integrations.canvas.settings import Settings

__all__ = ["Settings"]
