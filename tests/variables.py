"""What the environment tells the tests, taken out of it: a server that a test starts has neither a setting of whoever
runs the tests, nor one that it would warn of.
"""

import os

PREFIX = "WATERSPOUT_"
VARIABLES = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(PREFIX)}
