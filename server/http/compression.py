"""Compresses answers with gzip, if the setting and the client allow it (RFC 9110, 8.4.1.3 and 12.5.3).

Small answers are compressed in the event loop. Large ones are compressed slice by slice on a thread, where zlib
releases the GIL: 1 MB of documents takes 3 ms, of prose 14 ms, and other requests are answered meanwhile."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform

from serializers.tags import compressed
from server.http.cors import Transform
from server.http.negotiation import add_vary

MIN_BYTES = 1024
"""Answers up to this size are not compressed: they fit into one packet either way."""

INLINE_BYTES = 32_768
"""Up to this size compression takes 0.1 to 0.5 ms, little more than a switch to a thread and back."""

SLICE_BYTES = 131_072
"""How much of one answer the thread compresses before it is another answer's turn."""

LEVEL = 3
"""Level 3 makes documents a tenth of their size, at 350 MB/s. Level 1 is a seventh faster and its output a tenth
larger. Level 6 takes three times as long and its output is a tenth smaller."""

_GZIP_FORMAT = 31
_COMPRESSIBLE = re.compile(r"text/.*|application/(?:json|x-ndjson|javascript|xml|.*\+(?:json|xml))|image/svg\+xml")
_MAX_HEADER_LENGTH = 1000
_CODING = re.compile(r"([A-Za-z0-9*-]+)[ \t]*(?:;[ \t]*[qQ]=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*)?")

# One thread: more would take processor time from the event loop.
_thread = ThreadPoolExecutor(1, "gzip")


def transforms(compression: str) -> list[Transform]:
    """Return the transforms that tornado applies to each answer."""
    return [Gzip] if compression == "gzip" else []


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether the client accepts gzip, and prefers it or has no preference.

    >>> accepts_gzip("br, gzip;q=0.5"), accepts_gzip("*;q=0"), accepts_gzip("gzip;q=0.5, identity")
    (True, False, False)
    """
    return len(accept_encoding) <= _MAX_HEADER_LENGTH and _accepts_gzip(accept_encoding)


@lru_cache(maxsize=64)
def _accepts_gzip(accept_encoding: str) -> bool:
    weights: dict[str, float] = {}
    for element in accept_encoding.split(","):
        match = _CODING.fullmatch(element.strip(" \t"))
        if match is not None:
            weights[match[1].lower()] = float(match[2] or 1)
    weight = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return weight > 0 and weight >= weights.get("identity", 0.0)


def should_compress(request: HTTPServerRequest, headers: HTTPHeaders, size: int | None = None) -> bool:
    """Return whether to compress an answer. size: of its body; None if it is not known."""
    if (size is not None and size <= MIN_BYTES) or "Content-Encoding" in headers:
        return False
    media_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return accepts_gzip(request.headers.get("Accept-Encoding", "")) and _COMPRESSIBLE.fullmatch(media_type) is not None


def tell_compressed(headers: HTTPHeaders) -> None:
    """Set the headers of a compressed answer. It is another representation, so it has another tag."""
    headers["Content-Encoding"] = "gzip"
    if "ETag" in headers:
        headers["ETag"] = compressed(headers["ETag"])


class Gzip(OutputTransform):
    """Compresses answers that are sent in one piece and not compressed already. What custom code sends in pieces is not
    compressed."""

    def __init__(self, request: HTTPServerRequest) -> None:
        self._request = request

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        add_vary(headers, "Accept-Encoding")
        if finishing and should_compress(self._request, headers, len(chunk)):
            chunk = zlib.compress(chunk, LEVEL, _GZIP_FORMAT)
            tell_compressed(headers)
            headers["Content-Length"] = str(len(chunk))
        return status_code, headers, chunk


class GzipStream:
    """A body that is compressed piece by piece."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP_FORMAT)

    async def pack(self, piece: bytes, flush: int = zlib.Z_SYNC_FLUSH) -> bytes:
        """Compress a piece. Return the bytes up to its end. flush: Z_FINISH for the last piece."""
        if len(piece) <= INLINE_BYTES:
            return self._stream.compress(piece) + self._stream.flush(flush)
        loop, view, packed = asyncio.get_running_loop(), memoryview(piece), list[bytes]()
        for begin in range(0, len(piece), SLICE_BYTES):
            packed.append(await loop.run_in_executor(_thread, self._stream.compress, view[begin : begin + SLICE_BYTES]))
        packed.append(await loop.run_in_executor(_thread, self._stream.flush, flush))
        return b"".join(packed)

    def end(self) -> bytes:
        """End the stream. Return its last bytes."""
        return self._stream.flush(zlib.Z_FINISH)


async def compress_body(body: bytes) -> bytes:
    """Compress a whole body."""
    return await GzipStream().pack(body, zlib.Z_FINISH)


async def compress_pieces(pieces: Sequence[bytes]) -> list[bytes]:
    """Compress a whole body that is in pieces, as one stream."""
    packing = GzipStream()
    *before, last = pieces
    return [await packing.pack(piece, zlib.Z_NO_FLUSH) for piece in before] + [await packing.pack(last, zlib.Z_FINISH)]
