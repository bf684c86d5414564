"""Figures over many submissions: class statistics, metrics and operations."""
