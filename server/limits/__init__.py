"""Limits what a worker does at once: connections, requests, memory for bodies, shares of clients."""
