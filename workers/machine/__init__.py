"""The worker of one machine: claims runs, lets engines generate, leaves signed results in Redis.

Nothing here reads or writes the database: the server processes record results.
"""
