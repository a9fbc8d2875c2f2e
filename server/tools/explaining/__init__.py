"""Writes what `waterspout explain` prints, and which indexes would help."""
