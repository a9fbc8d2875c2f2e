"""The statements of writes."""
