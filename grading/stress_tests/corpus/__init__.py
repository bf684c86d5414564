"""Texts by which students try to talk a model into a grade: one module for each of ten classes."""
