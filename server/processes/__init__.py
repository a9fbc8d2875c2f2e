"""The processes of a running server: one master, generations of workers, and what they tell each other and systemd."""
