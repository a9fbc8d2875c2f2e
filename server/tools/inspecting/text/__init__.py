"""Writes declarations as the text of a Python module."""
