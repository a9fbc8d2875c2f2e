"""Describes documents and parameters in JSON Schema, for OpenAPI 3.1. It must not know: routes, statuses."""
