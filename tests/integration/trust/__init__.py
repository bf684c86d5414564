"""Tests of what makes grades trusted, with a database."""
