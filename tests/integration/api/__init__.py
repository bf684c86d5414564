"""Integration tests of api."""
