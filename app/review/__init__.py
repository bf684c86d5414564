"""Pages on which staff change, compare and release grades."""
