"""Shares connections and streams among clients: whose turn is next, and how long a turn is awaited."""
