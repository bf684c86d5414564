"""End-to-end tests of machine."""
