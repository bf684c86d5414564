"""Tests of variants for stress tests."""
