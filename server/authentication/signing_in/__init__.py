"""Signs people in with their browser, and keeps them signed in: `sessions.py` is the door."""
