"""Integration tests of integrations."""
