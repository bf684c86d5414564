"""Which queue a machine reads next and how fast it works.

The rule itself belongs to grading.scheduling.
"""
