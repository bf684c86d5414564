"""Learning platforms in the database: who they are, their people and links, and what they were told."""
