"""A Canvas by its API in the database: what is linked, what was pulled, and what it was told."""
