"""Pages of accounts: signing in, one's own settings, tokens, and users for administrators."""

from __future__ import annotations

from app.accounts import profile, sign_in, users

blueprints = (profile.pages, sign_in.pages, users.pages)
