"""Reads and writes JSON:API documents: bytes to changes, rows to bytes. It knows plans, but neither SQL nor HTTP."""
