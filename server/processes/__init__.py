"""Runs the processes of a server: one master, generations of workers, and their reports to each other and systemd."""
