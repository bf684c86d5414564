"""Hybrid inference: one machine reads the prompt, another writes the answer."""
