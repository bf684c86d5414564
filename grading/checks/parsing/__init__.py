"""Facts about code from its parsed form, such as calls, definitions and comments, one module a language.

Which of them count as the student's is a matter of `grading.checks.scope`.
"""
