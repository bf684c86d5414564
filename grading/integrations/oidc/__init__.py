"""OpenID Connect: what a provider publishes and signs, checked, and what its claims give by config.toml.

Accounts belong to grading.store.accounts, requests of browsers to app.accounts.
"""
