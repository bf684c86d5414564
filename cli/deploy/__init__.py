"""Installing and updating machines over SSH, and their services."""
