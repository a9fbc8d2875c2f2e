"""The places of `make test-mutations` exist. It takes too long to run with every test, and code moves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.property.mutations import HARMLESS, ROOT

FILES = [path for folder in ("querybuild", "server") for path in (ROOT / folder).rglob("*.py")]


def test_the_functions_to_change_exist() -> None:
    code = "from tests.property.mutations import mutate; mutate('nothing')"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("place", sorted(HARMLESS))
def test_the_harmless_places_exist(place: str) -> None:
    file, function = place.split("@")[1].split(":")
    assert any(f"def {function}(" in path.read_text() for path in FILES if path.name == file)
