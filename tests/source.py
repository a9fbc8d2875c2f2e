"""The source of the server as syntax trees: read once for all tests of a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("querybuild", "serializers", "server", "migrations")


@cache
def modules(*folders: str) -> tuple[Path, ...]:
    """Return the modules in these folders, and in those below them."""
    return tuple(path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


def all_modules() -> tuple[Path, ...]:
    return modules(*PACKAGES)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return every node of the tree of a module, in the order of `ast.walk`."""
    return tuple(ast.walk(tree_of(path)))
