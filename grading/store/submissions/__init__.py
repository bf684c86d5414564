"""Submissions from the upload to the receipt.

Their grading belongs to grading.store.rounds.
"""
