"""Tests of the gateway without Redis."""
