"""Pages of a course's grades: all students for staff, one's own for students, as files, changed by a file.

The result of one submission belongs to app.results.
"""

from __future__ import annotations

from app.gradebook import views

blueprints = (views.pages,)
