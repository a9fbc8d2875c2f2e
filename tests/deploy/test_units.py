"""The systemd units: systemd itself checks them, and what they say about the server must agree with what it does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from server.processes.stop_times import GENERATION_SECONDS, SLACK_SECONDS
from tests.deploy.confine import read_unit
from tests.deploy.programs import ROOT, SERVER, UNIT, needs_systemd

UNITS = sorted((ROOT / "deploy").glob("waterspout*.s*"))


@needs_systemd
def test_the_units_are_as_systemd_wants_them(tmp_path: Path) -> None:
    assert [unit.name for unit in UNITS] == ["waterspout-admin.socket", "waterspout.service", "waterspout.socket"]
    for unit in UNITS:
        # The program has to exist, but any program will do.
        text = unit.read_text().replace("/usr/local/bin/waterspout", sys.executable)
        (tmp_path / unit.name).write_text(text)
    copies = sorted(tmp_path.iterdir())
    verified = subprocess.run(["systemd-analyze", "verify", *copies], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


@needs_systemd
def test_the_service_is_exposed_to_little() -> None:
    """The score goes up to 10.0. A unit without restrictions has 9.6."""
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", str(UNIT)]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Overall exposure level for waterspout.service: ([0-9.]+)", judged.stdout)
    assert found is not None, judged.stderr
    assert float(found[1]) <= 1.5
    assert judged.returncode == 0


def test_settings_that_are_wrong_are_not_tried_again() -> None:
    command = [*SERVER, "serve", "--port", "none"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert [str(refused.returncode)] == read_unit(UNIT)["RestartPreventExitStatus"], refused.stderr


def test_systemd_waits_longer_for_the_end_than_the_server_does() -> None:
    (stop_seconds,) = read_unit(UNIT)["TimeoutStopSec"]
    assert int(stop_seconds) >= GENERATION_SECONDS + SLACK_SECONDS


@pytest.mark.parametrize("name", ["StateDirectory", "RuntimeDirectory"])
def test_its_folders_have_its_name(name: str) -> None:
    assert read_unit(UNIT)[name] == ["waterspout"]
