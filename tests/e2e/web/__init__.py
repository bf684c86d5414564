"""End-to-end tests of web."""
