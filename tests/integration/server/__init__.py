"""Integration tests of server."""
