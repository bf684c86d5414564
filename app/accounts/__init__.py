"""Pages of accounts: signing in, one's own settings, tokens, and users for administrators."""
