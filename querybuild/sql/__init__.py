"""Compiles plans into SQL."""
