"""The first page of each role, and the list of all submissions that its reader may see.

Lists of one course or assignment belong to app.courses and app.review.
"""

from __future__ import annotations

from app.home import views
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry

blueprints = (views.pages,)
navigation = (
    NavigationEntry(Menu.SITE, 10, "home.home", N_("Home"), "tokens.own", framed=True),
    NavigationEntry(Menu.SITE, 30, "home.submissions", N_("Submissions"), "machines.see"),
)
