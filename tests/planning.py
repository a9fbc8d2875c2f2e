"""Turns a query string or a document into plans and statements with the stages of the server, for tests of one
stage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from querybuild.declarations.catalog import Catalog
from querybuild.errors import ApiError, Several, raise_all
from querybuild.parse import FAMILIES, parse, split_pairs
from querybuild.planning.changes import PlannedWrite, plan_write
from querybuild.planning.context import Context, View
from querybuild.planning.planner import PlannedRead, plan_collection, plan_resource
from querybuild.query import Change, Limits, LinkMode, Query
from serializers import pointers
from serializers.decode import decode_linkage_document, decode_resource_document, with_id
from serializers.encode import DocumentEncoder
from serializers.json_api import JsonApiEncoder
from serializers.objects import Meta
from serializers.representation import Style
from tests.catalog import CATALOG

LIMITS = Limits(
    max_bulk_rows=100,
    page_size=30,
    max_page_size=10_000,
    unpaginated="on",
    total="exact",
    max_include_depth=3,
    max_includes=20,
    max_included=100_000,
    max_included_page=1000,
    max_groups=1000,
    max_url_bytes=16_384,
    max_query_cost=None,
    max_filter_depth=10,
    max_filter_nodes=100,
    max_list_values=1000,
    max_json_depth=64,
    max_json_values=100_000,
)

_JSON = msgspec.json.Encoder(decimal_format="number")


def limits(**changed: Any) -> Limits:
    return msgspec.structs.replace(LIMITS, **changed)


def parsed(query_string: str, limits: Limits = LIMITS) -> Query:
    """Parse the query string. Raises ApiError, or Several."""
    errors: list[ApiError] = []
    query = parse(split_pairs(query_string, errors), frozenset(FAMILIES), limits, errors)
    raise_all(errors)
    return query


def filter_query(filters: Any) -> str:
    """Return `filter=...`, percent-encoded. filters: JSON text, or a tree."""
    return "filter=" + quote(filters if isinstance(filters, str) else json.dumps(filters))


def read_collection(
    type_name: str, query_string: str = "", *, catalog: Catalog = CATALOG, limits: Limits = LIMITS
) -> PlannedRead:
    """Plan the read of a collection. Raises ApiError, or Several."""
    errors: list[ApiError] = []
    query = parse(split_pairs(query_string, errors), frozenset(FAMILIES), limits, errors)
    planned = plan_collection(query, catalog.by_type[type_name], catalog, Context(), limits, errors)
    raise_all(errors)
    return planned


def values_of(planned: PlannedRead) -> tuple[Any, ...]:
    """Return all values of a read: of the filter, of the cursor, the limit and the offset, if there are any."""
    rows, page = planned.plan.rows, planned.page_values
    limits = [value for slot, value in ((rows.limit, page.limit), (rows.offset, page.offset)) if slot is not None]
    return (*planned.values, *page.cursor, *limits)


def read_resource(
    type_name: str, query_string: str = "", *, written: tuple[str, ...] = (), limits: Limits = LIMITS
) -> PlannedRead:
    """Plan the read of one resource. Raises ApiError, or Several."""
    errors: list[ApiError] = []
    query = parse(split_pairs(query_string, errors), frozenset({"include", "fields"}), limits, errors)
    planned = plan_resource(query, CATALOG.by_type[type_name], CATALOG, Context(), limits, errors, written)
    raise_all(errors)
    return planned


def create(type_name: str, data: dict[str, Any], catalog: Catalog = CATALOG) -> PlannedWrite:
    """Plan the create of a resource. data: the resource object without its type. Raises ApiError, or Several."""
    errors: list[ApiError] = []
    body = _JSON.encode({"data": {"type": type_name} | data})
    change = decode_resource_document(body, Change(kind="create", type=None), errors, LIMITS)
    resource = catalog.by_type[type_name]
    planned = None if change is None else plan_write(change, resource, View(catalog), Context(), pointers, errors)
    raise_all(errors)
    assert planned is not None
    return planned


def update(type_name: str, id_text: str, data: dict[str, Any], catalog: Catalog = CATALOG) -> PlannedWrite:
    """Plan the update of a resource. data: the resource object without its type and id. Raises ApiError, or Several."""
    errors: list[ApiError] = []
    resource = catalog.by_type[type_name]
    body = _JSON.encode({"data": {"type": type_name, "id": id_text} | data})
    change = decode_resource_document(body, Change(kind="update", type=None), errors, LIMITS)
    if change is not None:
        change = with_id(change, id_text, errors)
    planned = None if change is None else plan_write(change, resource, View(catalog), Context(), pointers, errors)
    raise_all(errors)
    assert planned is not None
    return planned


def delete(type_name: str, id_text: str) -> PlannedWrite:
    errors: list[ApiError] = []
    change = Change(kind="delete", type=None, id=id_text)
    planned = plan_write(change, CATALOG.by_type[type_name], View(CATALOG), Context(), pointers, errors)
    raise_all(errors)
    return planned


def link(type_name: str, id_text: str, relationship: str, mode: LinkMode, data: Any) -> PlannedWrite:
    """Plan the write of a relationship route. data: linkage. Raises ApiError, or Several."""
    errors: list[ApiError] = []
    linkage = decode_linkage_document(_JSON.encode({"data": data}), errors, LIMITS, mode=mode)
    raise_all(errors)
    assert linkage is not None
    change = Change(kind="update", type=None, id=id_text, relationships={relationship: linkage})
    planned = plan_write(change, CATALOG.by_type[type_name], View(CATALOG), Context(), pointers, errors)
    raise_all(errors)
    return planned


Rows = list[list[tuple[Any, ...]]]


def encoded(planned: PlannedRead, rows: Rows, base_url: str = "", meta: Meta | None = None) -> bytes:
    """Encode the document of a plan whose nodes have these rows (in pre-order). A row is a tuple in the plan's order:
    id, attributes, keys, and at the end the parent's id if the key is not in the parent's row."""
    encoder = JsonApiEncoder(planned.plan, Style(base_url))
    return DocumentEncoder(planned.plan, encoder).encode(rows, {"self": "/x"}, meta)


def document(planned: PlannedRead, rows: Rows, base_url: str = "") -> Any:
    return json.loads(encoded(planned, rows, base_url))


Answered = tuple[type[ApiError], str | None, str]
"""An error as tests compare it: its class, its source (parameter or pointer), its detail."""


@contextmanager
def refused() -> Iterator[list[Answered]]:
    """Yield a list, which contains the block's errors in their order after the block has ended."""
    told: list[Answered] = []
    with pytest.raises(ApiError) as raised:
        yield told
    error = raised.value
    each = error.errors if isinstance(error, Several) else (error,)
    told.extend((type(one), one.pointer if one.parameter is None else one.parameter, one.detail) for one in each)
