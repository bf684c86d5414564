"""Pages of accounts: signing in, one's own profile, and users for administrators.

Who is in which course belongs to app.courses.
"""

from __future__ import annotations

from app.accounts import profile, sign_in, users

blueprints = (profile.pages, sign_in.pages, users.pages)
