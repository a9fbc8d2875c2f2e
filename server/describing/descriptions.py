"""Keeps the OpenAPI documents of a server, one for each view of the declarations."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from querybuild.cache import BoundedCache
from querybuild.planning.context import Context
from server.describing.document import describe
from server.engine import Engine

MAX_VIEWS, MAX_BYTES = 100, 16 * 1024 * 1024
"""How many documents are kept, and how many bytes of them. One that is larger is kept alone: a thousand resources
make 30 MB, in some seconds."""


class Description(msgspec.Struct, frozen=True):
    """A document that describes the server, or a file of the page that shows it."""

    body: bytes
    media_type: str
    etag: str


def description(body: bytes, media_type: str) -> Description:
    """Return a document with its version. The version is a weak one, because the body may be sent compressed."""
    return Description(body, media_type, f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')


class Descriptions:
    """Builds the document of a view when it is first asked for. custom: the paths of custom routes."""

    def __init__(self, engine: Engine, custom: Iterable[Mapping[str, Any]] = ()) -> None:
        self._engine = engine
        self._custom = tuple(custom)
        self._known: BoundedCache[Description] = BoundedCache(MAX_VIEWS, MAX_BYTES)

    async def of(self, context: Context) -> Description:
        """Return the document for principals with this context."""
        known = self._known.get(context.access)
        if known is None:
            # It may take a tenth of a second, and other requests are answered meanwhile.
            known = await asyncio.to_thread(self._made, context)
            self._known.put(context.access, known, min(len(known.body), MAX_BYTES))
        return known

    def _made(self, context: Context) -> Description:
        body = msgspec.json.encode(describe(self._engine, context, self._custom))
        return description(body, "application/json")
