"""config.toml as validated, frozen values.

What follows from the values belongs to the capability that uses them.
"""
