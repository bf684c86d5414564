"""The first page of each role, and the list of all submissions that its reader may see.

Lists of one course or assignment belong to app.courses and app.review.
"""

from __future__ import annotations

from app.home import views

blueprints = (views.pages,)
