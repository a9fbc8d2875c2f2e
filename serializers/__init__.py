"""JSON:API documents: bytes to changes, rows to bytes. It knows the query builder's plans, and neither SQL nor HTTP."""
