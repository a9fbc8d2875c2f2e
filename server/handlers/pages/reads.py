"""Makes the pages of reads: lists, resources, linkage and values of functions. What comes in: a handler, and the read
with its rows. What goes out: HTML.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource
from querybuild.parse import split_pairs
from querybuild.planning.context import refused_action
from querybuild.query import CAPPED_TOTAL
from serializers.links import quote_segment, resource_path, with_query
from serializers.objects import Meta
from serializers.pages.queries import ListQuery
from serializers.pages.rendering import Crumb, Frame, render
from serializers.pages.snippets import snippets
from serializers.pages.view import PageView, group_table, title_of
from serializers.resource_objects import UNNAMEABLE
from server.engine import Engine
from server.execution.execute import ReadResult
from server.handlers.pages.frames import make_frame
from server.handlers.pages.tools import facets_of, tools_of
from server.http.allowed_hosts import own_origin
from server.http.request import Request
from server.preparing.reads import PreparedRead
from server.routes import Route, Shape

SIZES = (30, 100, 300)
"""The numbers of rows that a page offers."""


class Asked(msgspec.Struct, frozen=True, eq=False):
    """What a page knows of its request. rows: their resource, None for a value. timing: as the header Server-Timing,
    empty if it is not sent. may_explain: whether the principal may see the SQL. owner: the label of the resource in the
    path, if the page shows what is related with it."""

    engine: Engine
    request: Request
    route: Route
    rows: Resource | None
    catalog: Catalog
    context: Any
    path: str
    timing: str
    may_explain: bool
    owner: str = ""

    @property
    def query(self) -> ListQuery:
        """The parameters."""
        return ListQuery(self.path, split_pairs(self.request.query, []))

    @property
    def resource(self) -> Resource:
        """The resource of the rows."""
        assert self.rows is not None
        return self.rows

    @property
    def base_url(self) -> str:
        """What links begin with."""
        return self.engine.base_url


class Learn(msgspec.Struct, frozen=True):
    """A request to copy. timing: empty if it is not shown. explain_url: of the page with its SQL, empty without one."""

    url: str
    snippets: dict[str, str]
    timing: str
    explain_url: str


def list_page(
    asked: Asked, view: PageView, prepared: PreparedRead, result: ReadResult, links: dict[str, str], meta: Meta
) -> bytes:
    """Return the page of a list. links: to other pages."""
    resource, query = asked.resource, asked.query
    plan = prepared.plan
    is_grouped = plan.data == "groups"
    if is_grouped:
        heads, body = group_table(plan, result.rows[0])
        columns = [_head(query, name, name, is_number=is_number) for name, is_number in heads]
    else:
        body = view.table(result.rows)
        is_sorted = plan.rows.nearest is None
        columns = [
            _head(query, column.name, column.sort if is_sorted else "", is_number=column.is_number)
            for column in view.columns
        ]
    shown = frozenset([column.name for column in view.columns])
    at = with_query(asked.route.path, asked.request.query)
    is_import = asked.route.shape is Shape.COLLECTION and _may(asked, resource, "create")
    tools = tools_of(resource, asked.catalog, query, asked.base_url, shown, at)
    count = len(result.rows[0])
    return render(
        "list.html",
        frame(asked, title_of_route(asked), query.as_form("json")),
        heading=title_of_route(asked),
        new_url=_new_url(asked),
        import_url=_form_url(asked, "import", resource.path) if is_import else "",
        description=resource.description if asked.route.shape is Shape.COLLECTION else "",
        counted=_counted(count, result, meta, "group" if is_grouped else "row"),
        exact_url=query.url(("page[total]", "exact"), without=frozenset()) if result.is_capped else "",
        facets_url=_facets_url(asked, query),
        chips=list(query.chips()),
        all_url=asked.path,
        tools=tools,
        note=_note(prepared),
        has_rows=bool(result.rows[0]),
        heads=columns,
        rows=body,
        links={"prev": links.get("prev", ""), "next": links.get("next", "")},
        sizes=[
            {"text": str(size), "url": "" if size == prepared.page.size else query.url(("page[size]", str(size)))}
            for size in SIZES
            if size <= asked.engine.limits.max_page_size
        ],
        hidden_columns=0 if is_grouped else len([choice for choice in tools.columns if not choice.is_on]),
        learn=_learn(asked, query),
    )


def resource_page(asked: Asked, view: PageView, rows: Sequence[Sequence[Any]]) -> bytes:
    """Return the page of one resource, or of none: a to-one that is empty."""
    query = asked.query
    if not rows[0]:
        return render(
            "value.html",
            frame(asked, title_of_route(asked), query.as_form("json")),
            heading=title_of_route(asked),
            value="null: there is no related resource.",
            learn=_learn(asked, query),
        )
    row = rows[0][0]
    heading = view.heading(row)
    node = view.node
    path = resource_path("", asked.resource, quote_segment(str(row[0])))
    is_named = row[0] not in UNNAMEABLE
    links, new = _urls_of_related(asked, path)
    declared = node.version is not None and bool(node.version.column)
    return render(
        "resource.html",
        frame(asked, heading, query.as_form("json"), crumb=heading),
        heading=heading,
        kind=asked.resource.type,
        row_id=str(row[0]),
        row_version=str(row[node.position_of_version]) if declared else "",
        fields=view.fields(row),
        related=view.related(rows),
        edit_url=_form_url(asked, "edit", path) if _may(asked, asked.resource, "update") and is_named else "",
        delete_url=_form_url(asked, "delete", path) if _may(asked, asked.resource, "delete") and is_named else "",
        link_urls=links if is_named else {},
        new_urls=new if is_named else {},
        learn=_learn(asked, query),
    )


def value_page(asked: Asked, value: str | None) -> bytes:
    """Return the page of the value of a function. value: JSON."""
    query = asked.query
    return render(
        "value.html",
        frame(asked, title_of_route(asked), query.as_form("json")),
        heading=title_of_route(asked),
        value="null" if value is None else json.dumps(json.loads(value), indent=2, ensure_ascii=False),
        learn=_learn(asked, query),
    )


def frame(asked: Asked, title: str, json_url: str, *, crumb: str = "") -> Frame:
    """Return what the page has around its content. crumb: the text of this page in the way from the start page."""
    return make_frame(
        asked.engine, asked.request, asked.context.principal, title, tuple(_crumbs(asked, crumb)), json_url
    )


def title_of_route(asked: Asked) -> str:
    """Return the heading of a list."""
    route = asked.route
    if route.relationship is not None:
        assert route.resource is not None
        return f"{route.relationship.name} of {asked.owner or f'{route.resource.type} {route.id}'}"
    if route.function is not None:
        return route.path.rpartition("/")[2]
    return title_of(asked.resource)


def _crumbs(asked: Asked, crumb: str) -> list[Crumb]:
    route, base = asked.route, asked.base_url
    if route.shape is Shape.COLLECTION or route.resource is None or route.function is not None:
        return [Crumb(title_of_route(asked))]
    owner = route.resource
    crumbs = [Crumb(title_of(owner), base + owner.path if "list" in owner.methods else "")]
    if route.shape is Shape.RESOURCE:
        return [*crumbs, Crumb(crumb)]
    own = base + route.path.removesuffix("/" + route.path.rpartition("/")[2]).removesuffix("/relationships")
    assert route.relationship is not None
    return [
        *crumbs,
        Crumb(asked.owner or route.id, own if "detail" in owner.methods else ""),
        Crumb(route.relationship.name),
    ]


def _learn(asked: Asked, query: ListQuery) -> Learn:
    path = query.url(without=frozenset())
    base = "" if urlsplit(path).netloc else own_origin(asked.request)
    url, explain_url = base + path, ""
    if asked.may_explain and asked.route.function is None:
        explain_url = f"{asked.base_url}{Shape.PAGES_EXPLAIN}?url={quote_segment(path)}"
    return Learn(url, snippets(url), asked.timing, explain_url)


def _head(query: ListQuery, name: str, sort: str, *, is_number: bool) -> dict[str, Any]:
    """Return the head of a column. sort: the key that sorts by it, empty without one."""
    direction, url = query.sorted_by(sort) if sort else ("", "")
    return {"text": name, "is_number": is_number, "sorted": direction, "url": url}


def _counted(count: int, result: ReadResult, meta: Meta, what: str) -> str:
    many = what if count == 1 else f"{what}s"
    if result.is_capped:
        return f"{count} of more than {CAPPED_TOTAL:,} {what}s"
    if meta.total is None:
        return f"{count} {many}"
    about = "about " if result.is_estimated else ""
    all_of_them = f"{meta.total:,} {what}" + ("" if meta.total == 1 else "s")
    return about + all_of_them if count == meta.total else f"{count} of {about}{all_of_them}"


def _note(prepared: PreparedRead) -> str:
    if prepared.plan.rows.nearest is not None:
        return "The nearest rows come first."
    return ""


def _may(asked: Asked, resource: Resource, action: Literal["create", "update", "delete"]) -> bool:
    """Return whether the principal may write resources of a type, as far as is known before it is tried."""
    is_allowed = action in resource.methods and not asked.engine.settings.read_only
    return is_allowed and refused_action(resource, action, asked.context) is None


def _form_url(asked: Asked, action: str, path: str) -> str:
    return f"{asked.base_url}/-/pages/{action}{path}"


def _facets_url(asked: Asked, query: ListQuery) -> str:
    """Return the URL of the values of some fields of a list, empty without one."""
    if asked.route.function is not None or not facets_of(asked.resource):
        return ""
    return ListQuery(_form_url(asked, "facets", quote(asked.route.path, safe="/%")), query.filters).url()


def _new_url(asked: Asked) -> str:
    """Return the URL of the form for a new resource of a list, empty without one."""
    route, resource = asked.route, asked.resource
    if route.function is not None or not _may(asked, resource, "create"):
        return ""
    if route.shape is not Shape.RELATED:
        return _form_url(asked, "new", resource.path) if route.shape is Shape.COLLECTION else ""
    assert route.relationship is not None
    if "add" not in route.relationship.methods:
        return ""
    return with_query(_form_url(asked, "new", resource.path), f"owner={quote_segment(route.path)}")


def _urls_of_related(asked: Asked, path: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the URLs of the forms for the links of each to-many, and of those for new resources in it. path: of the
    resource."""
    links, new = {}, {}
    for relationship in asked.resource.relationships if _may(asked, asked.resource, "update") else ():
        target = asked.catalog.target(relationship)
        if relationship.is_to_many and "read" in relationship.methods and {"add", "remove"} & relationship.methods:
            links[relationship.name] = _form_url(asked, "links", f"{path}/{quote_segment(relationship.name)}")
        if relationship.is_to_many and "add" in relationship.methods and _may(asked, target, "create"):
            owner = quote_segment(f"{path}/{quote_segment(relationship.name)}")
            new[relationship.name] = with_query(_form_url(asked, "new", target.path), f"owner={owner}")
    return links, new
