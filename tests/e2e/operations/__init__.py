"""End-to-end tests of operations."""
