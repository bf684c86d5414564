"""The processes that write to the database: they prepare, admit, record, combine, sweep and deliver.

Generating text belongs to workers.machine, running students' work to workers.sandbox, SQL to grading.store.
"""
