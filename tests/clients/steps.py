"""What the scripts in Python share: a step that says its name.

In: the name and what to run. Out: a line of standard output for each step; what fails in one ends the script. It must
not know a client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def step(name: str, run: Callable[..., Result], *arguments: object) -> Result:
    """What `run` returns and raises."""
    try:
        result = run(*arguments)
    except BaseException:
        print(f"{name}: failed", flush=True)
        raise
    print(f"{name}: ok", flush=True)
    return result
