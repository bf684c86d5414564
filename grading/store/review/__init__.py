"""What reviewers do: edits, second marking, curves, comments and regrade requests."""
