"""Limits what a worker does at once: connections and their balance, requests, memory for bodies, shares of clients."""
