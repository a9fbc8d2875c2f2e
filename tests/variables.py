"""Removes the server's settings from the environment of the tests, so that a server that a test starts has no setting
of the person who runs the tests, and warns of none."""

import os

PREFIX = "WATERSPOUT_"
VARIABLES = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(PREFIX)}
