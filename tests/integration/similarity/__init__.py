"""Tests of similarity with a database."""
