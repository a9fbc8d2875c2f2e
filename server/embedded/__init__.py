"""Runs the PostgreSQL that comes with the server."""
