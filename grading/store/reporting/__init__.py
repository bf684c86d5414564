"""Figures over many submissions: class statistics, metrics and operations.

Formulas of statistics belong to grading.statistics, reading for one page to grading.store.views.
"""
