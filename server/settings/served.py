"""Says which resources the settings choose, and what to do if they are not those of the database."""

from __future__ import annotations

from collections.abc import Iterable

from server.settings.settings import Settings, StartError

BUILT_IN = (
    "These are the built-in resources. Name the file of yours with --resources, or read the tables with --inspect."
)
_OWN = "Check that database_url names their database. waterspout inspect prints declarations for the tables of another."

_EMBEDDED = "This is the embedded database. Name their own with --database-url, or create the tables with --migrations."


def is_built_in(settings: Settings) -> bool:
    """Return whether the built-in resources are served."""
    return settings.resources is None and not settings.inspect


def built_in_hint(settings: Settings) -> str:
    """Return what to do if the user expects the tables of their own database, or an empty text."""
    return BUILT_IN if is_built_in(settings) and settings.database_url is not None else ""


def misfit(faults: Iterable[str], settings: Settings) -> StartError:
    """Return the error of declarations that do not fit the database. faults: a line for each."""
    of_user = _EMBEDDED if settings.database_url is None else _OWN
    hint = BUILT_IN if is_built_in(settings) else of_user
    return StartError("\n".join(("the declarations do not fit the database:", *faults, hint)))


def path_hint(paths: Iterable[str], settings: Settings) -> str:
    """Return what to do about a path that no resource has. paths: those that there are."""
    known = list(paths)
    some = ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
    return f"The paths are {some or 'none'}." + (f" {BUILT_IN}" if is_built_in(settings) else "")
