"""Finds modules of the user's that have the name of a package of the server: an import of this name gets the server's.

What comes in: the folder of the resources, and the modules that were loaded. What goes out: StartError, which names
what to rename.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from server.settings import StartError

OWN_PACKAGES = frozenset({"server", "querybuild", "serializers", "migrations"})


def check_imports(folder: Path, file: Path | None) -> None:
    """Raise StartError if a module of the folder imports a package beside it that has the name of one of the server's.
    file: the module with the resources, whose imports count also if it cannot be loaded."""
    beside = {name: place for name in OWN_PACKAGES if (place := _place(folder, name)) is not None}
    if not beside:
        return
    for path in {file, *_loaded(folder)} - {None}:
        assert path is not None
        for name in _imported(path) & beside.keys():
            raise StartError(f"{path} imports {name}, and gets the server's package, not {beside[name]}: rename yours")


def _place(folder: Path, name: str) -> Path | None:
    """Return the module or package of the user's with this name, if there is one."""
    own = Path(importlib.import_module(name).__file__ or "").parent
    module, package = folder / f"{name}.py", folder / name
    if module.is_file():
        return module
    is_package = package.is_dir() and package.resolve() != own.resolve() and any(package.glob("*.py"))
    return package if is_package else None


def _loaded(folder: Path) -> Iterator[Path]:
    for module in tuple(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path is not None and Path(path).parent.is_relative_to(folder) and "site-packages" not in Path(path).parts:
            yield Path(path)


def _imported(path: Path) -> set[str]:
    """Return the first parts of the names that a module imports."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").partition(".")[0])
    return names
