"""A trial: one execution of a document of a submission in the sandbox, as values. Nothing here runs anything."""
