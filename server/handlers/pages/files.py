"""Answers what pages need besides themselves: their style and script, and the forms that choose what a list shows. A
form cannot write a query like `filter[age][ge]=18`, so it is sent here, and the answer leads to the list."""

from __future__ import annotations

import re
from functools import partial
from urllib.parse import quote

from querybuild.declarations.resource import Resource
from querybuild.errors import ParameterError
from querybuild.filters import COUNT
from querybuild.parse import split_pairs
from serializers.pages.queries import ListQuery
from serializers.pages.rendering import FILES, file_of
from server.describing.descriptions import description
from server.handlers.base import Handler
from server.handlers.conditional import ends_with_tag
from server.handlers.pages.answering import lead_to
from server.handlers.pages.conditions import condition, simple_value
from server.http.target import canonical_path
from server.routes import match_route

_JOINED = re.compile(r"or-([0-9]{1,5})")
"""What the form sends to join a new filter with one that is there: the number of its chip."""

A_YEAR = 31_536_000


class PagesFileHandler(Handler):
    """Answers with a file of the pages. Its URL changes with it, so browsers may keep it."""

    identifies = False
    always_compresses = True

    async def get(self) -> None:
        assert self.route is not None
        name = self.route.path.rpartition("/")[2]
        content = description(file_of(name), FILES[name])
        self.set_header("Content-Type", content.media_type)
        self.set_header("Cache-Control", f"public, max-age={A_YEAR}, immutable")
        self.set_header("Vary", "Accept-Encoding")
        if not ends_with_tag(self, content.etag, None, len(content.body)):
            self.finish_document(content.body)


class PagesGoHandler(Handler):
    """Leads to a list with another filter, search, fields or related rows."""

    async def get(self) -> None:
        path, _, query = self.get_query_argument("at", "").partition("?")
        known = canonical_path(path) if path.startswith("/") and not path.startswith("//") else None
        route = None if known is None else match_route(known, self.catalog, self.engine.fixed_paths)
        if route is None or route.resource is None:
            raise ParameterError("It is not the path of a list.", parameter="at")
        target = route.resource
        if route.relationship is not None:
            target = self.catalog.target(route.relationship)
        listed = ListQuery(self.engine.base_url + quote(route.path, safe="/%"), split_pairs(query, []))
        lead_to(self, self._chosen(listed, target))

    def _chosen(self, listed: ListQuery, target: Resource) -> str:
        field = self.get_query_argument("field", "")
        if field:
            operator, value = self.get_query_argument("operator", "eq"), self.get_query_argument("value", "")
            name, _, counted = field.partition(".")
            keys = (name, COUNT, operator) if counted == COUNT else (field, operator)
            joined = _JOINED.fullmatch(self.get_query_argument("join", ""))
            if joined is not None:
                return listed.with_alternative(int(joined[1]), partial(condition, target, self.catalog), keys, value)
            return listed.with_filter(keys, simple_value(target, self.catalog, keys, value))
        if self.get_query_argument("choose", ""):
            columns, include = self.get_query_arguments("column"), self.get_query_arguments("include")
            fields = ",".join([*columns, *[path for path in include if path not in columns]])
            return listed.url((f"fields[{target.type}]", fields), ("include", ",".join(include)))
        return listed.url(("searchText", self.get_query_argument("search", "")))
