"""The PostgreSQL that comes with the server."""
