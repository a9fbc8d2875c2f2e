"""Reads the live schema of the database, and compares the declarations with it."""
