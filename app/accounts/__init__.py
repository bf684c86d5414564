"""Pages of accounts: signing in, one's own settings, tokens, and users for administrators."""

from __future__ import annotations

from app.accounts import admin, erasure, profile, sign_in, tokens

blueprints = (admin.pages, erasure.pages, profile.pages, sign_in.pages, tokens.pages)
