"""Pages of accounts: signing in, one's own profile, and users for administrators.

Who is in which course belongs to app.courses.
"""

from __future__ import annotations

from app.accounts import profile, second_factor, sign_in, single_sign_on, single_sign_on_links, users
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry

blueprints = (
    profile.pages, sign_in.pages, second_factor.pages, single_sign_on.pages, single_sign_on_links.pages,
    users.pages,
)  # fmt: skip
navigation = (
    NavigationEntry(Menu.SITE, 50, "users.listing", N_("Accounts"), "administer", below=("users",)),
)
