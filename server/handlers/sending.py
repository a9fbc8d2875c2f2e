"""Sends the answers of requests: their headers, and documents as a whole or in pieces, which may be compressed.

It must not know: documents, errors, the database.
"""

from __future__ import annotations

import asyncio
import random
import re
import time

from serializers.json_api import MEDIA_TYPE
from server.handlers.identifying import Identifying
from server.http import compression
from server.http.headers import Headers
from server.http.transport.answering import http_date

_PROXIED = frozenset({"X-Forwarded-For", "Forwarded", "Via", "X-Real-Ip"})
"""The headers that proxies add."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def _timing(stages: list[tuple[str, float]]) -> str:
    """Format the stages as W3C Server Timing, in milliseconds. stages: each with its begin."""
    text, end = "", time.perf_counter()
    for name, begin in reversed(stages):
        text, end = ", %s;dur=%.3f%s" % (name, (end - begin) * 1000, text), begin  # noqa: UP031 - it is faster
    return text[2:]


class Sending(Identifying):
    """The base of handlers that send answers."""

    def clear(self) -> None:
        """Set the default headers. tornado calls this at the start, and `Handler` before an error is answered.
        tornado's own method sets other headers, formats the date each time and checks our values: an eighth of the time
        of a small request."""
        if not hasattr(self, "request_id"):
            given = self.request.headers.by_name.get("X-Request-Id", [""])
            is_usable = len(given) == 1 and _REQUEST_ID.fullmatch(given[0])
            self.request_id = given[0] if is_usable else f"{random.getrandbits(128):032x}"
        date = http_date(int(time.time()))
        self._headers = Headers(
            {"Date": [date], "Content-Type": [MEDIA_TYPE], "Vary": ["Accept"], "X-Request-Id": [self.request_id]}
        )
        self._write_buffer = []
        self.set_status(200)
        self.set_default_headers()

    def set_etag_header(self) -> None:
        """Set no ETag. The contract has none yet, and tornado's own needs a hash of every answer."""

    def check_etag_header(self) -> bool:
        """Return False, because there is no ETag."""
        return False

    def stage(self, name: str) -> None:
        """Begin the stage with this name. It ends the stage before."""
        self.stages.append((name, time.perf_counter()))

    def set_server_timing(self) -> None:
        """Set the header Server-Timing, if the settings allow it."""
        is_sent = self.engine.settings.server_timing
        if is_sent is None:
            # A proxy on the same host sends the answers on.
            is_sent = self.request.server_connection.is_loopback and _PROXIED.isdisjoint(self.request.headers.by_name)
        if is_sent and self.stages:
            self._headers["Server-Timing"] = _timing(self.stages)

    def finish_document(self, body: bytes, status: int = 200) -> None:
        """Send this document as the answer."""
        if status != 200:
            self.set_status(status)
        self.set_server_timing()
        if len(body) > compression.INLINE_BYTES and self.should_compress():
            self.compress_and_finish(body)
        else:
            self._finish_whole(body)

    def _finish_whole(self, body: bytes) -> None:
        self._headers["Content-Length"] = str(len(body))
        # This is what `write` does, without its check of the type.
        self._write_buffer.append(body)
        self.finish()

    async def finish_pieces(self, pieces: list[bytes], status: int = 200) -> None:
        """Send a document in pieces as the answer. A large document is never joined, because copying it would block
        other requests."""
        if len(pieces) == 1:
            self.finish_document(pieces[0], status)
            return
        self.set_status(status)
        self.set_server_timing()
        if self.should_compress():
            pieces = await self.cancel_scope.run(compression.compress_pieces(pieces))
        if self._finished:
            return
        self._headers["Content-Length"] = str(sum(map(len, pieces)))
        for piece in pieces:
            self.write(piece)
            self.flush()
            await asyncio.sleep(0)
        if not self._finished:
            self.finish()

    def should_compress(self) -> bool:
        """Return whether a large answer is compressed. If so, set Content-Encoding."""
        if self.engine.settings.compression == "off" or not compression.should_compress(self.request, self._headers):
            return False
        self._headers["Content-Encoding"] = "gzip"
        return True

    def compress_and_finish(self, body: bytes) -> asyncio.Future[None]:
        """Compress the body and send it, while other requests are answered."""
        self._auto_finish = False
        self._compression = asyncio.ensure_future(self._finish_compressed(body))
        return self._compression

    async def _finish_compressed(self, body: bytes) -> None:
        try:
            compressed = await self.cancel_scope.run(compression.compress_body(body))
            if not self._finished:
                self._finish_whole(compressed)
        except Exception as error:
            self.answer_error(error)

    def flush(self, include_footers: bool = False) -> asyncio.Future[None]:
        if self.request.method != "HEAD":
            self.sent_bytes += sum(map(len, self._write_buffer))
        return super().flush(include_footers)
