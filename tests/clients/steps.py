"""Runs the steps of the scripts in Python.

In: the name of a step and a function. Out: a line of standard output for each step. A step that fails ends the script.
It knows no client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def step(name: str, run: Callable[..., Result], *arguments: object) -> Result:
    """Run the function, print the step's name, and return what the function returns."""
    try:
        result = run(*arguments)
    except BaseException:
        print(f"{name}: failed", flush=True)
        raise
    print(f"{name}: ok", flush=True)
    return result
