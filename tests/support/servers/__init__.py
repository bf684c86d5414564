"""Servers that speak the protocols of real engines, for tests."""
