"""What `grader doctor` looks at: each module gives findings, none raises for what it examines."""
