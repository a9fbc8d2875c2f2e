"""Finds the faults of declarations. `catalog.py` reports them together."""
