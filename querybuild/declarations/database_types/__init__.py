"""Column types whose values only PostgreSQL can check."""
