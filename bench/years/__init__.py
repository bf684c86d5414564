"""Benchmark of a school with years of data: pages, the sweeper, memory of long commands, sizes of tables.

Holds what measures the database's own work, which a busy computer does not disturb.
"""
