"""What pages show of Canvas, which has no pages of its own.

Canvas's API belongs to grading.integrations.canvas, its rows to grading.store.integrations.canvas.
"""

from __future__ import annotations

from app.platforms.canvas.platform_pages import PAGES

__all__ = ["PAGES"]
