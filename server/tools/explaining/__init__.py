"""Explains a read: what `waterspout explain` prints. The stages are those of the server."""
