"""Runs the writes of a request."""
