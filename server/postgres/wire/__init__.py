"""The bytes that go over a connection to PostgreSQL."""
