"""Class statistics and their plots."""
