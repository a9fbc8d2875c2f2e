"""The variables of the person who runs the tests reach every process of the tests, and no server."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.source import ROOT

SHOW = "from tests.variables import VARIABLES; import os; print(VARIABLES, 'WATERSPOUT_TEST_POSTGRES' in os.environ)"
START = f"import tests.variables, subprocess, sys; subprocess.run([sys.executable, '-c', {SHOW!r}], check=True)"


def test_a_process_that_the_first_one_starts_has_them() -> None:
    environment = {"PATH": os.environ["PATH"], "WATERSPOUT_TEST_POSTGRES": "postgresql://elsewhere"}
    environment["WATERSPOUT_WRITE_DOCS"] = ""
    shown = subprocess.run(
        [sys.executable, "-c", START], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "{'WATERSPOUT_TEST_POSTGRES': 'postgresql://elsewhere'} False\n"
