"""Comparison of values, tables and outputs with what is expected; the kinds of checks give points for it."""
