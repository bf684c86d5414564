"""Pages on which an assignment's rubric, task, files and versions are written.

What is written, without pages, belongs to grading.assignments.editor, the settings' page to app.assignments.
"""
