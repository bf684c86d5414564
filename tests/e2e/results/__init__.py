"""End-to-end tests of results."""
