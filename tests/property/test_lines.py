"""Lists as CSV and as NDJSON show what the same lists show as documents, for all types of columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.types import JSON, JSONB
from server.resources import built_in
from tests import catalog as corner
from tests.lines import read_csv
from tests.property.filters import CORNER_TYPES, TYPES, filters, sorts
from tests.property.rows import make_corner_rows, make_rows, store, store_corner
from tests.property.served import Served, served


class Lists:
    """A server with rows. rows: as the filters of tests need them."""

    def __init__(self, server: Served, catalog: Catalog, types: tuple[str, ...], rows: Any) -> None:
        self.server, self.catalog, self.types, self.rows = server, catalog, types, rows

    def get(self, path: str, pairs: list[tuple[str, str]]) -> bytes:
        answer = self.server.raw("GET", f"{path}?{urlencode(pairs, quote_via=quote)}".encode())
        assert answer.status == 200, answer
        return bytes(answer.body)


@pytest.fixture(scope="module", params=["people", "corner"])
def lists(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Lists]:
    is_people = request.param == "people"
    catalog, ddl = (built_in(), "") if is_people else (corner.CATALOG, corner.DDL)
    types, fill = (TYPES, store) if is_people else (CORNER_TYPES, store_corner)
    rows = make_rows(3) if is_people else make_corner_rows(3)
    with served(postgres_url, catalog, ddl) as server:
        fill(server, rows)
        yield Lists(server, catalog, types, rows)


class Number(str):
    """A number as the document writes it."""


def is_same(attribute: Attribute, field: str | None, text: Any, value: Any) -> bool:
    """Return whether a field of CSV is the value of a document. text: the value, with its numbers as they are
    written."""
    if attribute.type in (JSON, JSONB):
        # Null inside JSON and null instead of JSON are the same in a document.
        return value is None if field is None else bool(json.loads(field) == value)
    if isinstance(value, list | dict):
        return field is not None and bool(json.loads(field) == value)
    if isinstance(value, bool):
        return field == json.dumps(value)
    return bool(field == text)


def columns_of(resource: Resource, data: DataObject) -> list[str] | None:
    """Draw the fields of a request, None for all."""
    known = [one.name for one in (*resource.readable_attributes, *resource.relationships)]
    return data.draw(st.none() | st.lists(st.sampled_from(known), max_size=6))


@given(data=st.data())
def test_lines(lists: Lists, data: DataObject) -> None:
    type_name = data.draw(st.sampled_from(lists.types))
    resource = lists.catalog.by_type[type_name]
    pairs = [("filter", json.dumps([data.draw(filters(type_name, lists.rows))]))] if data.draw(st.booleans()) else []
    if data.draw(st.booleans()):
        pairs.append(("sort", data.draw(sorts(type_name))))
    if (names := columns_of(resource, data)) is not None:
        pairs.append((f"fields[{type_name}]", ",".join(names)))
    to_ones = [
        one.name for one in resource.relationships if not one.is_to_many and (names is None or one.name in names)
    ]
    include = [("include", ",".join(to_ones)), ("page[size]", "0")]
    body = lists.get(resource.path, pairs + include)
    shown = json.loads(body)["data"]
    texts = json.loads(body, parse_int=Number, parse_float=Number)["data"]
    csv = read_csv(lists.get(resource.path, [*pairs, ("answerAs", "csv")]).decode(), is_safe=True)
    ndjson = lists.get(resource.path, [*pairs, ("answerAs", "ndjson")]).decode().split("\n")[:-1]
    attributes = {one.name: one for one in resource.readable_attributes}
    for one, text, fields, line in zip(shown, texts, csv, ndjson, strict=True):
        linkage = {name: one["relationships"][name]["data"] for name in to_ones}
        written = json.loads(line)
        assert fields.pop("id") == written["id"] == one["id"]
        assert written.get("attributes", {}) == one.get("attributes", {})
        assert {name: each["data"] for name, each in written.get("relationships", {}).items()} == linkage
        for name, value in linkage.items():
            assert fields.pop(f"{name}.id") == (None if value is None else value["id"])
        for name, value in one.get("attributes", {}).items():
            assert is_same(attributes[name], fields.pop(name), text["attributes"][name], value), name
        assert not fields
