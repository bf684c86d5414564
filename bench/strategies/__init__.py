"""`grader bench strategies`: ways to spread two prompts over two machines, measured and reckoned."""
