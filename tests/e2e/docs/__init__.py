"""End-to-end tests of the site of docs/."""
