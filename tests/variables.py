"""Removes the server's settings from the environment of the tests, so that a server that a test starts has no setting
of the person who runs the tests, and warns of none. `VARIABLES` has them, in each process of the tests."""

import json
import os

PREFIX = "WATERSPOUT_"
PASSED_ON = "TESTS_RUN_WITH"
"""The variable in which the first process passes them on to the others."""

VARIABLES: dict[str, str] = json.loads(os.environ.get(PASSED_ON, "{}"))
VARIABLES |= {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(PREFIX)}
# `make test` sets some to nothing.
VARIABLES = {name: value for name, value in VARIABLES.items() if value}
os.environ[PASSED_ON] = json.dumps(VARIABLES)
