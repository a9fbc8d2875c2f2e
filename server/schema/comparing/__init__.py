"""Compares declarations with the live tables, without a connection."""
