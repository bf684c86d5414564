"""Erasure, export, retention and back-up of what is stored of people."""
