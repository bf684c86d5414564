"""End-to-end tests of privacy."""
