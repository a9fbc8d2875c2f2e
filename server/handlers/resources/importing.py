"""Answers a POST of a file of CSV or NDJSON: creates a resource for each of its lines."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from querybuild.errors import ApiError
from querybuild.parse import ON_CONFLICT, parse_on_conflict, split_pairs
from querybuild.planning.context import check_action, check_method
from serializers.lines.reading import csv_batches, ndjson_batches
from serializers.objects import MetaDocument
from server.execution.writes.imports import Import, Records
from server.execution.writes.reply import Reply
from server.handlers.received_file import ReceivedFile
from server.http.headers import Headers
from server.http.negotiation import CACHED_HEADERS, CSV, NDJSON, MediaType

if TYPE_CHECKING:
    from querybuild.query import Change
    from server.handlers.resources.resource import CollectionHandler
    from server.handlers.writing import WritingHandler

_TYPES = {media_type.name: media_type for media_type in (CSV, NDJSON)}
_ACCEPTS = frozenset({ON_CONFLICT})


def import_type(headers: Headers) -> MediaType | None:
    """Return the media type of a body with lines, None for others. UTF-8 is the only charset."""
    return _import_type(headers["Content-Type"]) if "Content-Type" in headers.by_name else None


@lru_cache(maxsize=CACHED_HEADERS)
def _import_type(content_type: str) -> MediaType | None:
    name, _, parameters = content_type.partition(";")
    charset = parameters.lower().partition("charset=")[2].partition(";")[0].strip(' "')
    return _TYPES.get(name.strip().lower()) if charset in ("", "utf-8", "utf8") else None


async def answer_import(handler: CollectionHandler, media_type: MediaType) -> None:
    """Create a resource for each line of the body, all or none, and answer with their number."""
    check_method(handler.resource, "create")
    check_action(handler.resource, "create", handler.context)
    handler.engine.reads.check_parameters(handler.request.query, _ACCEPTS)
    # It has the limits of a stream instead of those of a request.
    handler.is_stream = True
    await handler.answer_write(
        partial(_records, handler, media_type),
        lambda records, _: make_import(handler, records),
        partial(run_import, handler),
        lambda _, count: Reply(201, msgspec.json.encode(MetaDocument({"count": count}))),
    )


def _records(handler: CollectionHandler, media_type: MediaType, errors: list[ApiError]) -> Records:
    """Return what reads the file."""
    received = handler.received
    assert isinstance(received, ReceivedFile)
    on_conflict = parse_on_conflict(split_pairs(handler.request.query, []), errors)
    asked = msgspec.structs.replace(handler.asked("create"), on_conflict=on_conflict)
    if media_type is NDJSON:
        return partial(ndjson_batches, received.file, asked, handler.engine.settings.max_body_bytes)
    return csv_records(handler, received.file, asked)


def csv_records(handler: WritingHandler, file: BinaryIO, asked: Change) -> Records:
    """Return what reads a file of CSV. asked: what is asked for each line."""
    settings, resource = handler.engine.settings, handler.resource
    known = file, resource, asked, handler.context.access.read_only_of(resource.type), settings.max_body_bytes
    return partial(csv_batches, *known, is_safe=settings.csv_safe)


def make_import(handler: WritingHandler, records: Records) -> Import:
    """Return the work of an import."""
    return Import(handler.writer, handler.engine, handler.context, handler.resource, records)


async def run_import(handler: WritingHandler, work: Import) -> int:
    """Run an import. A worker has one at a time, because each keeps a connection and the loop busy."""
    async with handler.imports:
        return await work.run()
