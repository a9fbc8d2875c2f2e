"""Answers with the bytes of an attribute: a file to save, or an image that a page shows."""

from __future__ import annotations

import re
from urllib.parse import unquote

from querybuild.errors import ApiError, ResourceNotFound, quoted
from querybuild.planning.context import check_action
from serializers.links import quote_segment
from serializers.pages.values import image_type
from serializers.resource_objects import value_positions
from server.handlers.reading import ReadingHandler
from server.preparing.reads import ReadShape
from server.routes import ON_ONE

SHOWN = "shown"
"""The parameter with which a page shows an image. Otherwise browsers save the bytes."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class BytesHandler(ReadingHandler):
    """Answers with the bytes of an attribute."""

    async def get(self) -> None:
        assert self.route is not None
        check_action(self.resource, "read", self.context)
        name = unquote(self.route.path.rpartition("/")[2])
        attribute = self.resource.attribute(name)
        if attribute is None or not attribute.readable or attribute.type.family != "bytea":
            raise self._nothing(name)
        shape = ReadShape("resource", self.resource, accepts=ON_ONE)
        query = f"fields[{quote_segment(self.resource.type)}]={quote_segment(name)}"
        prepared, result = await self.read_besides(shape, query)
        rows = result.rows[0]
        value = rows[0][value_positions(prepared.plan.node)[attribute]] if rows else None
        if value is None:
            raise self._nothing(name)
        self._send_bytes(value, name)

    def _send_bytes(self, value: bytes, name: str) -> None:
        kind = image_type(value) if self.get_query_argument(SHOWN, "") else None
        file = _UNSAFE.sub("_", name) or "file"
        self.set_header("Content-Type", kind or "application/octet-stream")
        self.set_header("Content-Disposition", f'attachment; filename="{file}"' if kind is None else "inline")
        self.set_header("Content-Security-Policy", "sandbox; default-src 'none'")
        self.set_header("Vary", "Authorization, Cookie")
        self.tell_caches()
        self.finish_document(value)

    def _nothing(self, name: str) -> ApiError:
        return ResourceNotFound(f"There are no bytes in {quoted(name)}.")
