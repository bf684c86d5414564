"""Webhooks that learning systems send."""
