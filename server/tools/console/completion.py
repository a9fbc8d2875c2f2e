"""Writes the scripts that complete the command line in a shell."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

SHELLS = ("bash", "zsh", "fish")
"""The shells whose scripts click has."""


def script(program: click.Command, name: str, shell: str) -> str:
    """Return the script for a shell. name: that of the program, as people type it."""
    kind = get_completion_class(shell)
    assert kind is not None, f"click has no completion for {shell}"
    variable = f"_{name}_COMPLETE".replace("-", "_").replace(".", "_").upper()
    # That of the class itself first runs the shell, to warn of an old version.
    return ShellComplete.source(kind(program, {}, name, variable))
