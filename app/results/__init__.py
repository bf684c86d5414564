"""The result of a submission as images, as a PDF and as the PDFs of a class.

How its parts look on a page belongs to app.reports, the page itself to app.submissions.
"""

from __future__ import annotations

from app.results import views

blueprints = (views.pages,)
