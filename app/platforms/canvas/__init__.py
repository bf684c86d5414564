"""Canvas by its API: what pages show of it. It has none of its own.

The talk with Canvas belongs to grading.integrations.canvas, its rows to grading.store.integrations.canvas.
"""

from __future__ import annotations

from app.platforms.canvas.pages import PAGES

__all__ = ["PAGES"]
