"""Describes the server in OpenAPI 3.1, and serves a page that shows the description."""
