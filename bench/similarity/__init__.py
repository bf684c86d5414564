"""Measures of similarity: copies planted in classes of programs, and what is found of them."""
