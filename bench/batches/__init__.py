"""The benchmark of batches: what they change in answers, and what a second opinion costs grading."""
