"""Comparisons of submissions in pairs, for staff only.

Reading for their pages belongs to grading.store.views, groups of answers to grading.store.review.
"""

from __future__ import annotations
