"""The kinds of checks: a module holds one kind, or a family of them that share code.

A class of `CheckKind` with a name as default of its field `kind` is all that a kind needs: rubrics, reports,
the editor and the API find it here. What several families share stands in `grading.checks`.
"""
