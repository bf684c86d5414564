"""What stages are called on pages."""

from __future__ import annotations

from app.web.i18n import later as N_

TITLES = {"analysis": N_("Technical review"), "feedback": N_("Personal feedback")}
