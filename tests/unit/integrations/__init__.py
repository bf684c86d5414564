"""Unit tests of integrations."""
