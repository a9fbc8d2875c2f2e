"""Executes plans: reads, writes and streams, from the values of a plan to its rows."""
