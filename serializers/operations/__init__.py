"""The documents of atomic operations.

Sources: service.md "Atomic operations route"; the JSON:API extension https://jsonapi.org/ext/atomic.
"""
