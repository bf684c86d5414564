"""The domain of Grader, shared by the web app and the workers."""
