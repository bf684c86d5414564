"""The end of a round: its results become a report and a grade.

Only workers.server imports it.
"""
