"""Runs a server over rows that a model in plain Python knows too. What comes in: the name of a catalog, and a seed for
its rows. What goes out: a Subject."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from querybuild.declarations.catalog import Catalog
from server.resources import built_in
from tests import catalog as corner
from tests.property.filters import CORNER_TYPES, TYPES
from tests.property.model import Model
from tests.property.rows import make_corner_rows, make_rows, store, store_corner
from tests.property.served import Served, served

SUBJECTS = ("people", "corner")


class Subject(msgspec.Struct):
    """A server, and a model of its rows. types: those for which filters can be drawn."""

    server: Served
    catalog: Catalog
    types: tuple[str, ...]
    model: Model


@contextmanager
def open_subject(postgres_url: str, name: str, seed: int) -> Iterator[Subject]:
    """Serve the built-in resources, "people", or those of the corner cases, "corner"."""
    if name == "people":
        rows, catalog = make_rows(seed), built_in()
        with served(postgres_url, catalog) as server:
            store(server, rows)
            yield Subject(server, catalog, TYPES, Model(rows))
    else:
        rows = make_corner_rows(seed)
        with served(postgres_url, corner.CATALOG, corner.DDL) as server:
            store_corner(server, rows)
            yield Subject(server, corner.CATALOG, CORNER_TYPES, Model(rows))
