"""Reads the tables of a database that somebody else designed, and declares resources for them."""
