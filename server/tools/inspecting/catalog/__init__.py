"""Reads the system catalog of PostgreSQL into immutable values."""
