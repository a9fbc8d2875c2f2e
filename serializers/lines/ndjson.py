"""Writes lists as lines of JSON: a resource object for each resource, with the linkage of its to-one relationships; or
an object for each group.

Source: the media type `application/x-ndjson`, "Newline Delimited JSON".
It must not know: SQL, HTTP.
"""

from __future__ import annotations

from querybuild.planning.plan import ReadPlan
from querybuild.planning.rows import Row
from serializers.compound import Level
from serializers.groups import encode_group_lines
from serializers.objects import Meta
from serializers.representation import DocumentForm, Representation, Style
from serializers.resource_objects import ResourceEncoder

MEDIA_TYPE = "application/x-ndjson"


class NdjsonEncoder:
    """Writes the lines of one plan. The resource objects have no links."""

    head, between, comma, nothing, shows_included = b"", b"", b"", b"", False

    def __init__(self, plan: ReadPlan, style: Style) -> None:
        node = plan.node
        self._groups = plan if plan.data == "groups" else None
        linked = tuple([branch.relationship.name for branch in node.branches])
        has_version = node.version is not None and bool(node.version.column)
        self._encoder = ResourceEncoder(
            *(node, linked, style.base_url),
            has_link=False,
            has_links=False,
            has_version=has_version,
            has_distance=plan.rows.nearest is not None,
        )

    def primary(self, level: Level) -> list[bytes]:
        """Return a line for each row. A value of a `json` column may have line breaks, between its values only."""
        if self._groups is not None:
            return [encode_group_lines(self._groups, level.rows)]
        objects = self._encoder.encode(level.rows, level.linkage, level.ids)
        if not objects:
            return [b""]
        lines = b"\n".join(objects) + b"\n"
        if lines.count(b"\n") == len(objects) and b"\r" not in lines:
            return [lines]
        return [line.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n" for line in objects]

    def included(self, level: Level) -> list[bytes]:
        """Not called: `shows_included` is false."""
        raise AssertionError(level)

    def tail(self, links: dict[str, str], meta: Meta | None) -> bytes:
        """Return nothing."""
        return b""

    def one(self, row: Row, links: dict[str, str], meta: Meta | None) -> bytes | None:
        """Return None: lists have lines."""
        return None

    def form(self, links: dict[str, str], meta: Meta | None) -> DocumentForm | None:
        """Return None: lists have lines."""
        return None


NDJSON = Representation(NdjsonEncoder)
