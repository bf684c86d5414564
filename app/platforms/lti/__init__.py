"""Learning platforms by LTI 1.3: launches, frames, deep linking, registration, and what pages show of them.

The protocol belongs to grading.integrations.lti, its rows to grading.store.integrations.lti.
"""

from __future__ import annotations

from app.platforms.lti.platform_pages import PAGES

__all__ = ["PAGES"]
