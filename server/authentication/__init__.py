"""Finds out who sends a request: `authenticator.py` is the door. Tokens are verified here; what a principal may do is
decided elsewhere."""
