"""Builds plans from query strings and changes, and SQL from plans. It knows PyPika, but not HTTP, the driver or
documents."""
