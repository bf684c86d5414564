"""Signs that a submission talks to the model that judges it.

They hold a grade and cost no points.
"""
