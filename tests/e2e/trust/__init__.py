"""Walks through the pages of trust in a real browser."""
