"""Makes the parts of pages that show rows. What comes in: a plan, once; then the rows of each answer. What goes out:
tables and lists as Markup.

It must not know: SQL, HTTP, the request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec
from markupsafe import Markup

from querybuild.declarations.resource import Attribute, Relationship, Resource
from querybuild.planning.plan import Branch, Node, ReadPlan
from querybuild.planning.reads.labels import label_of, summary_of
from querybuild.planning.rows import FirstRows, Row, key_position, nodes
from serializers.links import quote_segment, related_path, resource_path
from serializers.pages.values import (
    NULL,
    cell,
    escape,
    file_link,
    is_number,
    label_text,
    short_text,
    shown_value,
    whole,
)
from serializers.representation import Style
from serializers.resource_objects import UNNAMEABLE, value_positions, values_of

SHOWN_RELATED = 5
"""How many included resources a cell shows."""

Found = dict[int, Sequence[Row]]
"""The rows of each node, by its position in pre-order."""


class Column(msgspec.Struct, frozen=True, eq=False):
    """A column of a table. name: of the field. sort: the key that sorts by it, empty without one. is_number: whether
    its values are at the right."""

    name: str
    sort: str = ""
    is_number: bool = False


class ShownField(msgspec.Struct, frozen=True, eq=False):
    """An attribute of a resource, with its value."""

    name: str
    value: Markup
    description: str = ""


class RowLink(msgspec.Struct, frozen=True, eq=False):
    """A link to a resource, by its label. url: empty if no URL can name it. summary: what tells it apart if its label
    is only its id."""

    url: str
    label: str
    summary: str = ""


class ShownRelationship(msgspec.Struct, frozen=True, eq=False):
    """The related resources of a relationship on the page of a resource. total: of all, None if it is not known."""

    name: str
    is_to_many: bool
    links: list[RowLink]
    url: str
    total: int | None = None
    description: str = ""


class PageView:
    """Writes the rows of one plan."""

    def __init__(self, plan: ReadPlan, style: Style) -> None:
        node, self._plan = plan.node, plan
        self._base_url = style.base_url
        self._known = value_positions(node)
        self._order = [each for each, _ in nodes(node)]
        self._named = _Named(node, style.base_url)
        self._distance = node.width if plan.rows.nearest is not None else None
        self._branches = [branch for branch in node.branches if branch.relationship in node.relationships]
        self._related_names = [
            _Named(branch.node, style.base_url, has_summary=not plan.is_collection) for branch in self._branches
        ]
        self.columns = [Column("id", "id")]
        self._cells: list[tuple[Attribute, int, Callable[[Any], Any]]] = []
        for attribute in node.attributes:
            self.columns.append(Column(attribute.name, _sort_of(attribute), is_number(attribute)))
            self._cells.append((attribute, self._known[attribute], shown_value(attribute)))
        for branch in self._branches:
            target, relationship = branch.node.resource, branch.relationship
            label = label_of(target)
            by_label = f"{relationship.name}.{label.name}" if label is not None and label.is_sortable else ""
            sort = f"count({relationship.name})" if relationship.is_to_many else by_label or f"{relationship.name}.id"
            self.columns.append(Column(relationship.name, sort if relationship.filterable else ""))
        if self._distance is not None:
            self.columns.append(Column("distance", is_number=True))

    def table(self, rows: Sequence[Sequence[Row]]) -> Markup:
        """Return the rows of a table: `<tr>`. rows: those of each node, in pre-order."""
        primary = rows[0]
        columns: list[list[str]] = [[_row_head(self._named.link(row), row[0]) for row in primary]]
        for attribute, position, show in self._cells:
            opening = '<td class="n">' if is_number(attribute) else "<td>"
            columns.append([f"{opening}{cell(show(row[position]))}</td>" for row in primary])
        for branch, links in zip(self._branches, self._related(rows), strict=True):
            of = itemgetter(key_position(self.node, branch))
            if branch.relationship.is_to_many:
                columns.append([self._list_cell(branch, row, links.get(of(row), [])) for row in primary])
            else:
                columns.append([f"<td>{_anchors(links.get(of(row), [])) or NULL}</td>" for row in primary])
        if self._distance is not None:
            columns.append([f'<td class="n">{row[self._distance]}</td>' for row in primary])
        return Markup("".join([f"<tr>{''.join(cells)}</tr>\n" for cells in zip(*columns, strict=True)]))

    def _list_cell(self, branch: Branch, row: Row, links: list[RowLink]) -> str:
        """Return the number of related rows, and links to the first ones."""
        # With a size, there may be rows that were not read.
        count = "all" if links and branch.size is not None else f"{len(links):,}"
        url = self._url_of(branch.relationship, row) if links else ""
        begin = f'<a href="{escape(url)}">{count}</a>' if url else f'<span class="muted">{count}</span>'
        more = " …" if len(links) > SHOWN_RELATED else ""
        return f'<td class="r">{begin}{": " if links else ""}{_anchors(links[:SHOWN_RELATED])}{more}</td>'

    def _url_of(self, relationship: Relationship, row: Row) -> str:
        """Return the URL of related rows, empty if there is none."""
        if "read" not in relationship.methods or row[0] in UNNAMEABLE:
            return ""
        own = resource_path(self._base_url, self.node.resource, quote_segment(str(row[0])))
        return related_path(own, relationship)

    def links(self, rows: Sequence[Row]) -> list[RowLink]:
        """Return links to primary rows, by their labels."""
        return [self._named.link(row) for row in rows]

    def fields(self, row: Row) -> list[ShownField]:
        """Return the attributes of one resource."""
        shown = [
            (attribute, Markup(self._whole(attribute, show(row[position]), row[0])))
            for attribute, position, show in self._cells
        ]
        return [ShownField(attribute.name, value, attribute.description) for attribute, value in shown]

    def _whole(self, attribute: Attribute, value: Any, row_id: Any) -> str:
        if not isinstance(value, bytes) or row_id in UNNAMEABLE:
            return whole(value)
        own = resource_path("/-/pages/bytes", self.node.resource, quote_segment(str(row_id)))
        return file_link(value, f"{self._base_url}{own}/{quote_segment(attribute.name)}")

    def related(self, rows: Sequence[Sequence[Row]]) -> list[ShownRelationship]:
        """Return the relationships of one resource, with the first rows of each."""
        row, node = rows[0][0], self._plan.node
        by_name = dict(zip([branch.relationship.name for branch in self._branches], self._related(rows), strict=True))
        totals = {branch.relationship.name: self._total(branch, rows, row) for branch in self._branches}
        branches = {branch.relationship.name: branch for branch in self._branches}
        shown = []
        for relationship in node.relationships:
            links: list[RowLink] = []
            if relationship.name in branches:
                links = by_name[relationship.name].get(_parent_of(branches[relationship.name], node, row), [])
            shown.append(
                ShownRelationship(
                    relationship.name,
                    relationship.is_to_many,
                    links,
                    self._url_of(relationship, row),
                    totals.get(relationship.name),
                    relationship.description,
                )
            )
        return shown

    def ids_of(self, rows: Sequence[Sequence[Row]], name: str) -> list[str]:
        """Return the ids of the related rows of one resource."""
        branch = next((shown for shown in self._branches if shown.relationship.name == name), None)
        if branch is None:
            return []
        row, children = rows[0][0], rows[self._index_of(branch)]
        if branch.relationship.is_own_key:
            key = row[key_position(self.node, branch)]
            return [] if key is None else [str(key)]
        own = children.by_parent.get(row[0], []) if isinstance(children, FirstRows) else children
        return [str(child[0]) for child in own]

    @property
    def node(self) -> Node:
        """The primary rows."""
        return self._plan.node

    def heading(self, row: Row) -> str:
        """Return the label of a row."""
        return self._named.link(row).label

    def _total(self, branch: Branch, rows: Sequence[Sequence[Row]], row: Row) -> int | None:
        children = rows[self._index_of(branch)]
        if not isinstance(children, FirstRows):
            return len(children) if branch.relationship.is_to_many and branch.is_included else None
        return children.totals.get(row[0], len(children.by_parent.get(row[0], ())))

    def _index_of(self, branch: Branch) -> int:
        return next(index for index, node in enumerate(self._order) if node is branch.node)

    def _related(self, rows: Sequence[Sequence[Row]]) -> Iterator[dict[Any, list[RowLink]]]:
        """Yield for each branch the links to related rows, by what `_parent_of` returns."""
        for branch, named in zip(self._branches, self._related_names, strict=True):
            children = rows[self._index_of(branch)]
            by_parent: dict[Any, list[RowLink]] = defaultdict(list)
            if branch.fetch == "row":
                position = key_position(self._plan.node, branch)
                for key in {row[position] for row in rows[0]}:
                    if key is not None:
                        by_parent[key].append(named.of_id(key))
            elif branch.relationship.is_own_key:
                for child in children:
                    by_parent[child[0]] = [named.link(child)]
            elif isinstance(children, FirstRows):
                for parent, own in children.by_parent.items():
                    by_parent[parent] = [named.link(child) for child in own]
            else:
                for child in children:
                    by_parent[child[branch.node.position_of_parent]].append(named.link(child))
            yield by_parent


class _Named:
    """Makes links to the rows of a node. has_summary: whether rows without a label have one."""

    def __init__(self, node: Node, base_url: str, *, has_summary: bool = False) -> None:
        self._resource, self._base_url = node.resource, base_url
        self._has_page = "detail" in node.resource.methods
        label = label_of(node.resource)
        positions = value_positions(node)
        self._label = None if label is None else positions.get(label)
        summary = summary_of(node.resource) if has_summary and label is None else ()
        self._summary = [(positions[each], shown_value(each)) for each in summary if each in positions]

    def link(self, row: Row) -> RowLink:
        label = None if self._label is None else row[self._label]
        return RowLink(self._url(row[0]), label_text(label, row[0]), self._summary_of(row) if self._summary else "")

    def _summary_of(self, row: Row) -> str:
        return " · ".join(filter(None, [short_text(show(row[position])) for position, show in self._summary]))

    def of_id(self, row_id: Any) -> RowLink:
        return RowLink(self._url(row_id), str(row_id))

    def _url(self, row_id: Any) -> str:
        is_named = self._has_page and row_id not in UNNAMEABLE
        return resource_path(self._base_url, self._resource, quote_segment(str(row_id))) if is_named else ""


def _parent_of(branch: Branch, node: Node, row: Row) -> Any:
    """Return what the related rows of a row are found by: its key, or its id."""
    return row[key_position(node, branch)]


def _row_head(link: RowLink, row_id: Any) -> str:
    return f'<th scope="row">{_anchor(RowLink(link.url, str(row_id)))}</th>'


def anchor(link: RowLink) -> Markup:
    """Return a link as an element, or only its text if it has no URL."""
    return Markup(_anchor(link))


def _anchor(link: RowLink) -> str:
    text = f"<bdi>{escape(link.label)}</bdi>"
    return f'<a href="{escape(link.url)}">{text}</a>' if link.url else text


def _anchors(links: list[RowLink]) -> str:
    return ", ".join(map(_anchor, links))


def _sort_of(attribute: Attribute) -> str:
    element = attribute.type.element
    has_cursor = element is None or element.name != "enum"
    return attribute.name if attribute.is_sortable and attribute.type.comparison.has_order and has_cursor else ""


def group_table(plan: ReadPlan, rows: Sequence[Row]) -> tuple[list[tuple[str, bool]], Markup]:
    """Return the heads of a table of groups, each with whether it is a number, and its rows."""
    heads = [(attribute.name, is_number(attribute)) for attribute in plan.node.attributes]
    openings = ['<td class="n">' if is_n else "<td>" for _, is_n in heads]
    lines = [
        "".join([f"{opening}{cell(value)}</td>" for opening, value in zip(openings, values, strict=True)])
        for values in values_of(plan.node)(rows)
    ]
    return heads, Markup("".join([f"<tr>{line}</tr>\n" for line in lines]))


def title_of(resource: Resource) -> str:
    """Return the heading of the list of a resource: its path in words."""
    return resource.path.rpartition("/")[2].replace("_", " ").replace("-", " ").capitalize()
