"""Editing an assignment in the browser, as pure functions: form, folder, differences, proposals.

Storing drafts belongs to grading.store.assignments, pages to app.assignments.editor.
"""
