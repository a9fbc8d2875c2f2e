"""Explains a read: its query, its plan, and how PostgreSQL executes each statement, by the stages of the server."""
