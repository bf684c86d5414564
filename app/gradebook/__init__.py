"""The gradebook and its files."""
