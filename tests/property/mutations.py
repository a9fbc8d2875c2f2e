"""Removes the rules from one place at a time, and checks that tests fail: `make test-mutations`. A place is a function
that opens rows, or that asks what the principal may do.

What comes in: nothing, or names of places. What goes out: a line for each place, and 1 if the tests passed without one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from querybuild.planning.context import View
from tests.variables import VARIABLES

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/http/access/test_field_rights.py",
    "tests/http/access/test_rules.py",
    "tests/property/test_rules.py",
    "tests/property/test_hidden_rows.py",
    "tests/property/test_written_rules.py",
)
HARMLESS = {
    # It only locks a row that is checked beside it, as the target of the same assignment.
    "open_rows@relationships.py:locked_owner",
    # The row that the path names is also checked as the owner of the new row.
    "open_rows@relationships.py:_through",
    # The written resource is that of the view already.
    "view_of@writes.py:plan",
    "view_of@writes.py:prepare_typed",
    "view_of@writing.py:shape_of",
}
"""Places where the rules make no difference."""
ALL = "all"
"""In place of a place: nothing is removed, and the places are written into a file."""


def place_of(skipped: set[str]) -> str:
    """Return the function that has called, such as `planner.py:_branch_rows`. skipped: files that only pass it on."""
    frame = sys._getframe(2)
    while Path(frame.f_code.co_filename).name in skipped:
        assert frame.f_back is not None
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"


def mutate(mutation: str) -> None:
    """Remove the rules from a place in this process. mutation: such as `open_rows@planner.py:_branch_rows`."""
    from querybuild.planning import conditions, rowsets
    from server.engine import Engine
    from server.preparing import reads, writes

    def without_criteria(rows: Any) -> Any:
        return msgspec.structs.replace(rows, criteria=())

    _patch(mutation, "open_rows", (rowsets, conditions), without_criteria, {"rowsets.py"})
    _patch(mutation, "may_lack", (conditions,), lambda _: False, set())
    # Refused writes do not depend on rows: the tests of writes in tests/http/ have them.
    _patch(mutation, "check", (reads.Reads,), None, set())
    _patch(mutation, "view_of", (Engine,), None, {"base.py"})
    _patch(mutation, "view_of", (reads, writes), None, set())


def _patch(
    mutation: str,
    name: str,
    owners: tuple[Any, ...],
    change: Callable[[Any], Any] | None,
    skipped: set[str],
) -> None:
    """Change what a function returns, for its callers in one place. change: None if the function is not called at all:
    then it returns None, or the declarations of the engine."""
    seen = set[str]()
    function = next(getattr(owner, name) for owner in owners if hasattr(owner, name))

    def changed(*arguments: Any, **named: Any) -> Any:
        place = f"{name}@{place_of(skipped)}"
        if mutation == ALL and place not in seen:
            seen.add(place)
            with Path(VARIABLES["WATERSPOUT_PLACES"]).open("a") as file:
                file.write(place + "\n")
        if place == mutation and change is None:
            return next((one for one in arguments if isinstance(one, View)), getattr(arguments[0], "view", None))
        found = function(*arguments, **named)
        return change(found) if place == mutation and change is not None else found

    for owner in owners:
        if hasattr(owner, name):
            setattr(owner, name, changed)


def run(mutation: str, places: str = "") -> int:
    """Run the tests with a mutation. Return their exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", *TESTS]
    variables = os.environ | {"WATERSPOUT_MUTATION": mutation, "WATERSPOUT_PLACES": places}
    return subprocess.run(command, cwd=ROOT, env=variables, stdout=subprocess.DEVNULL, check=False).returncode


def main(mutations: list[str]) -> int:
    if not mutations:
        with tempfile.NamedTemporaryFile() as file:
            assert run(ALL, file.name) == 0, "the tests fail without a mutation"
            mutations = sorted(set(Path(file.name).read_text().split()))
    survived = 0
    for mutation in mutations:
        code = run(mutation)
        assert code in (0, 1), code
        survived += code == 0 and mutation not in HARMLESS
        print("fails" if code else "PASSES", mutation, flush=True)
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
