"""Setting up the server itself: packages, users, secrets, Redis, database, units, and taking them back.

What is done on other machines belongs in `cli.deploy`.
"""
