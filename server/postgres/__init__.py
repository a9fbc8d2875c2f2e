"""Connections to PostgreSQL: the pool, transactions, limits, and the meaning of errors."""
