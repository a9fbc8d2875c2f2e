"""Answers with the facets of a list: for some attributes the values that the list has, each with how often it has it.
They are another page, which the script of the list shows beside it. What comes in: the filters of the list.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from querybuild.declarations.resource import Attribute
from querybuild.errors import release_frames
from querybuild.parse import split_pairs
from serializers.links import Pairs, quote_segment
from serializers.pages.forms import typed_text
from serializers.pages.queries import ListQuery
from serializers.pages.rendering import Crumb, render
from serializers.pages.view import title_of
from serializers.resource_objects import values_of
from server.errors import StatementTimeout, TooExpensive
from server.execution.arguments import arguments_of
from server.execution.execute import execute_read
from server.handlers.pages.answering import finish_page
from server.handlers.pages.frames import make_frame
from server.handlers.pages.tools import facets_of
from server.handlers.reading import ReadingHandler
from server.http.negotiation import HTML
from server.preparing.reads import ReadKind, ReadShape
from server.routes import ON_MANY, PAGES

_PREFIX = f"{PAGES}facets"

FACET_SECONDS = 0.05
"""How long one facet may take. A page must not wait for the groups of a million rows."""

VALUES = 20
"""How many values a facet shows."""


class Value(msgspec.Struct, frozen=True):
    """A value of a facet. url: of the list with only these rows."""

    text: str
    count: int
    url: str


class Facet(msgspec.Struct, frozen=True):
    """A facet. values: None if it took too long. groups: the URL of all values."""

    name: str
    values: list[Value] | None
    groups: str


class FacetsHandler(ReadingHandler):
    """Answers with the facets of a collection, or of a list of related resources."""

    answers_pages = True

    async def get(self) -> None:
        self.answer_type = HTML
        assert self.route is not None
        relationship = self.route.relationship
        kind: ReadKind = "collection" if relationship is None else "related"
        shape = ReadShape(kind, self.resource, relationship, accepts=ON_MANY)
        self.engine.reads.check(shape, self.context)
        rows = self.resource if relationship is None else self.catalog.target(relationship)
        path_id = None if relationship is None else self.path_id(self.resource)
        path = self.engine.base_url + quote(self.route.path.removeprefix(_PREFIX), safe="/%")
        query = ListQuery(path, ListQuery(path, split_pairs(self.request.query, [])).filters)
        facets = [await self._facet(attribute, query, shape, path_id) for attribute in facets_of(rows)]
        name = title_of(rows) if relationship is None else relationship.name
        title = f"Values of {name.lower()}"
        crumbs = (Crumb(name, query.url()), Crumb("Values"))
        page = render(
            "facets.html",
            make_frame(self.engine, self.request, self.context.principal, title, crumbs),
            heading=title,
            facets=facets,
        )
        finish_page(self, page)

    async def _facet(self, attribute: Attribute, query: ListQuery, shape: ReadShape, path_id: Any) -> Facet:
        groups: Pairs = (("groupBy", attribute.name), ("aggregateAs[count]", "count()"), ("sort", "-count"))
        asked = (*query.pairs, *groups, ("page[size]", str(VALUES)), ("page[total]", "none"))
        text = "&".join([f"{quote_segment(name)}={quote_segment(value)}" for name, value in asked])
        prepared = self.engine.reads.prepare(shape, text, self.context)
        sent = arguments_of(prepared, self.context, path_id)
        database = self.database.acting_for(self.context.principal, "read")
        try:
            work = execute_read(database, prepared, sent, self.engine, FACET_SECONDS)
            result = await self.cancel_scope.run(work)
        except (StatementTimeout, TooExpensive) as error:
            release_frames(error)
            return Facet(attribute.name, None, query.url(*groups))
        counted = values_of(prepared.plan.node)(result.rows[0])
        return Facet(
            attribute.name, [_value(attribute, value, count, query) for value, count in counted], query.url(*groups)
        )


def _value(attribute: Attribute, value: Any, count: int, query: ListQuery) -> Value:
    if value is None:
        return Value("null", count, query.with_filter((attribute.name, "is_"), "null"))
    text = typed_text(value)
    return Value(text or "empty", count, query.with_filter((attribute.name, "eq"), text))
