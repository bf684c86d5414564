"""Pages that write an assignment: rubric, task, files and versions."""
