"""The examples in docstrings. No database, no socket."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import waterspout
from server.resources import built_in
from tests.planning import LIMITS

ROOT = Path(__file__).parents[2]
PACKAGES = ("server", "querybuild", "serializers", "migrations", "bench")
MODULES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)

GIVEN = {**vars(waterspout), "catalog": built_in(), "limits": LIMITS}
"""The names that an example may use besides those of its module: the public names for declarations, and some of the
server."""


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    """All examples are run."""
    module = import_module(name)
    written = Path(str(module.__file__)).read_text(encoding="utf-8").count(">>> ")
    results = doctest.testmod(module, globs={**GIVEN, **vars(module)})
    assert (results.failed, results.attempted) == (0, written)
