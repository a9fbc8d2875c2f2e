"""Parses families of parameters."""
