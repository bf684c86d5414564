"""The pool that runs students' work in a sandbox: Celery queue `sandbox`."""
