"""A trial is one execution of a document of a submission in the sandbox. Here are its values and plans."""
