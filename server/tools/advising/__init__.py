"""Finds indexes that would make requests faster."""
