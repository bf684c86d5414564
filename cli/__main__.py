"""`python -m cli` is `grader`."""

from cli.main import main

main()
