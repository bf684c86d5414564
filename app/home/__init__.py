"""The first page of each role."""
