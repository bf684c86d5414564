"""The HTTP API: `routes.py` is its table, `blueprint.py` makes a blueprint of it, each resource has a module.

What views call belongs to the packages that pages use.
"""

from __future__ import annotations

from app.api import blueprint, docs_page
from app.api.rate_limits import limit

__all__ = ["blueprints", "limit"]

blueprints = (blueprint.api, docs_page.pages)
