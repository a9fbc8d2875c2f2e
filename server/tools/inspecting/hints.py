"""Reads the file of hints for `inspect`: what the system catalog cannot say.

    schemas = ["public", "sales"]
    skip = ["audit_*"]

    [tables.film_list]
    id = "fid"
    type = "listed_film"
    names = { "Unit Price" = "price" }

    [functions.rewards_report]
    method = "POST"

It must not know: the database.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from querybuild.errors import listed, nearest, quoted
from server.settings import StartError
from server.tools.inspecting.catalog.choosing import TableChoice
from server.tools.inspecting.catalog.model import InspectedDatabase, InspectedTable, Routine

DEFAULT_FILE = Path("inspect.toml")


class TableHints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hints about one table. id: the columns of its key. type, path, label: of its resource. facets: the attributes
    whose values pages offer; None for those that have few. names: the names of its fields, by column, or by the name
    that the field has without the hint."""

    id: str | tuple[str, ...] = ()
    type: str = ""
    path: str = ""
    label: str = ""
    facets: tuple[str, ...] | None = None
    names: dict[str, str] = {}

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns of the key; empty if the hints do not name them."""
        return (self.id,) if isinstance(self.id, str) else self.id


class FunctionHints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hints about one function. method: POST, without which no VOLATILE function becomes a route. returns: the type
    of the resources whose ids it returns. path: of its route. names: the names of its arguments, by those in the
    database."""

    method: Literal["", "GET", "POST"] = ""
    returns: str = ""
    path: str = ""
    names: dict[str, str] = {}


class Hints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All hints. schemas, only, skip: as the options of the command. prefixes: of tables, left out of types and paths.
    tables: by name, with the schema unless it is
    `public`. functions: by name, or by name and types: `film_count(integer)`."""

    schemas: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    tables: dict[str, TableHints] = {}
    functions: dict[str, FunctionHints] = {}

    def of_function(self, routine: Routine) -> FunctionHints:
        """Return the hints about a function."""
        return self.functions.get(routine.shown) or self.functions.get(routine.full_name) or FunctionHints()

    def of(self, table: InspectedTable) -> TableHints:
        """Return the hints about a table."""
        full_name = f"{table.schema}.{table.name}"
        return self.tables.get(table.full_name) or self.tables.get(full_name) or TableHints()

    def choice(
        self, schemas: tuple[str, ...] = (), only: tuple[str, ...] = (), skip: tuple[str, ...] = ()
    ) -> TableChoice:
        """Return the choice of tables. schemas, only, skip: of the command, which come before those of the file."""
        return TableChoice(schemas or self.schemas, only or self.only, (*self.skip, *skip))

    def unknown_functions(self, routines: Sequence[Routine]) -> list[str]:
        """Return a message for each hint about a function that does not exist."""
        known = {name for routine in routines for name in (routine.full_name, routine.shown)}
        return [
            f"the hints name the function {quoted(name)}, which is not inspected.{nearest(name, known)}"
            for name in self.functions
            if name not in known
        ]

    def unknown_names(self, database: InspectedDatabase) -> list[str]:
        """Return a message for each name of `schemas`, `only` and `skip` that fits no table and no function."""
        return [f"the hints: {fault}" for fault in self.choice().unknown(database)]

    def unknown(self, database: InspectedDatabase) -> list[str]:
        """Return a message for each name in the hints that fits no table and no function. Those of [functions] are
        checked by `unknown_functions`."""
        known = {name for table in database.tables for name in (table.full_name, f"{table.schema}.{table.name}")}
        return [
            *self.unknown_names(database),
            *(
                f"the hints name the table {quoted(name)}, which is not inspected.{nearest(name, known)}"
                for name in self.tables
                if name not in known
            ),
        ]


def _unknown_keys(read: dict[str, Any]) -> Iterator[str]:
    """Yield a message for each key that hints do not have."""
    places: list[tuple[str, Any, type[msgspec.Struct]]] = [("", read, Hints)]
    for group, hinted in (("tables", TableHints), ("functions", FunctionHints)):
        hinted_group = read.get(group)
        for name, hint in hinted_group.items() if isinstance(hinted_group, dict) else ():
            places.append((f" in [{group}.{quoted_key(name)}]", hint, hinted))
    for place, keys, kind in places:
        known = kind.__struct_fields__
        for key in keys if isinstance(keys, dict) else ():
            if key not in known:
                yield f"there is no {quoted(key)}{place}: known are {listed(known)}.{nearest(key, known)}"


def quoted_key(name: str) -> str:
    """Return a key of TOML."""
    plain = name.replace("_", "").replace("-", "").isalnum() and name.isascii()
    return name if plain else quoted_text(name)


def quoted_text(text: str) -> str:
    """Return a text of TOML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def load_hints(path: Path | None) -> Hints:
    """Read the file. Without a path it is `inspect.toml` in the current folder, if that exists. Raises StartError."""
    if path is None and not DEFAULT_FILE.is_file():
        return Hints()
    path = path or DEFAULT_FILE
    try:
        with path.open("rb") as file:
            read: dict[str, Any] = tomllib.load(file)
        if unknown := list(_unknown_keys(read)):
            raise StartError("\n".join(f"the hints {path}: {fault}" for fault in unknown))
        return msgspec.convert(read, Hints)
    except OSError as error:
        raise StartError(f"the hints {path} cannot be read: {error.strerror}") from error
    except msgspec.ValidationError as error:
        raise StartError(f"the hints {path}: {error}") from error
    except ValueError as error:  # a TOMLDecodeError, or the UnicodeDecodeError of a file that is not UTF-8
        raise StartError(f"the hints {path} are not TOML: {error}") from error
