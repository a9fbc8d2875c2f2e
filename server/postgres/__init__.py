"""Connections to PostgreSQL: which are open, who has one, and what a broken one means."""
