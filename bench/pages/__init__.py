"""What pages cost: of a large school, and of many people who wait."""
