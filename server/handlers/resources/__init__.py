"""The handlers of resources, their relationships, atomic operations and functions."""
