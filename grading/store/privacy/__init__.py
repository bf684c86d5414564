"""Erasure, export, retention and back-up of the data of people.

Removing single rows belongs to the package of their table.
"""
