"""Facts about code from its parsed form: calls, definitions, comments. A language is a module here.

Which of them count as the student's is a matter of `grading.checks.scope`.
"""
