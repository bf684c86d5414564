"""Pages of class statistics, with their plots.

The numbers belong to grading.statistics, the drawing of plots that other pages share to app.web.
"""

from __future__ import annotations

from app.statistics import views

blueprints = (views.pages,)
