"""Benchmarks: the server against a hand-written handler (`floor`), and where one request's time goes.

`.venv/bin/python -m bench` writes `bench/figures/`. Nothing here is part of the distribution.
"""
