"""The HTTP API: its table of routes, how a route is answered, its description, one module for each resource.

What views call belongs to the packages that pages use; what other tools ask models belongs to app.gateway.
"""

from __future__ import annotations

from app.api import blueprint, docs_page
from app.api.blueprint import limit

__all__ = ["blueprints", "limit"]

blueprints = (blueprint.api, docs_page.pages)
