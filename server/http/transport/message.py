"""Parses one request (RFC 9112): the empty lines before it, its first line, its headers, and where its body ends.

llhttp, through httptools, parses headers and chunks in its strict mode. Request lines are parsed here, because llhttp
refuses unknown methods, which a handler answers with 405, and targets with bytes beyond ASCII.

It must not know: connections, handlers.
"""

from __future__ import annotations

import re
from http import HTTPStatus

from httptools import HttpParserUpgrade, HttpRequestParser
from tornado.httputil import RequestStartLine

from server.http.headers import Headers, usual_name

END = b"\r\n\r\n"
NO_TAIL = bytes(len(END) - 1)

FED_BYTES, FED_TIMES = 16_384, 2000
"""For chunked bodies: how many bytes the parser is fed at once, and its steps in one call. Megabytes in chunks of one
byte, or of empty lines, take millions of steps. Other requests must get their turn meanwhile."""

METHOD_CHARACTERS = 32
"""The maximum length of a method. Those registered with IANA have at most 17 characters."""

EMPTY_LINES = 4
"""How many may come before a request line (RFC 9112, 2.2). Some clients send one behind a body."""

_METHOD, _TARGET = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]", rb"[\x21-\x7e\x80-\xff]+"
REQUEST_LINE = re.compile(rb"(%b{1,%d}) (%b) HTTP/1\.([0-9])\r\n" % (_METHOD, METHOD_CHARACTERS, _TARGET))
"""Method, target and minor version. A minor version above 1 is answered as HTTP/1.1 (RFC 9110, 2.5)."""

_LONG_METHOD = re.compile(rb"%b+ %b HTTP/1\.[0-9]\r\n" % (_METHOD, _TARGET))
_OTHER_VERSION = re.compile(rb"[^ \r\n]+ [^ \r\n]+ HTTP/(?!1\.[0-9]\r\n)[0-9]+(\.[0-9]+)?\r\n")

_PREFACES = {"HTTP/1.0": b"POST / HTTP/1.0", "HTTP/1.1": b"POST / HTTP/1.1"}
"""The request lines that llhttp sees in place of those that were sent."""


class Refused(Exception):
    """The bytes are not a valid request, and are answered with a bare status. The bytes behind them cannot be
    parsed."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status)
        self.status = status


def status_for(head: bytes) -> HTTPStatus:
    """Return the status for a head whose first line does not match `REQUEST_LINE`."""
    if _LONG_METHOD.match(head) is not None:
        return HTTPStatus.NOT_IMPLEMENTED
    return HTTPStatus.BAD_REQUEST if _OTHER_VERSION.match(head) is None else HTTPStatus.HTTP_VERSION_NOT_SUPPORTED


def without_empty_lines(data: bytes) -> tuple[bytes, int]:
    """Return the data behind the empty lines, and how many there are. Counts up to one more than are allowed. Line ends
    other than CRLF are left in: they are not a request line."""
    count = 0
    while count <= EMPTY_LINES and data.startswith(b"\r\n", 2 * count):
        count += 1
    return data[2 * count :], count


class Message:
    """A request: its head, and its body while that arrives.

    body_bytes_left: how many bytes of the body are missing, -1 for a chunked body. has_body: whether the head announces
    a body, which may be empty.
    """

    __slots__ = ("_parser", "_pieces", "_tail", "_trailer_bytes", "body_bytes_left", "has_body", "headers", "line")

    def __init__(self, head: bytes) -> None:
        """Raises Refused, HttpParserError. head: with the empty line at its end."""
        line = REQUEST_LINE.match(head)
        if line is None:
            raise Refused(status_for(head))
        method, target, minor = line.groups()
        version = "HTTP/1.0" if minor == b"0" else "HTTP/1.1"
        self.line = RequestStartLine(method.decode("ascii"), target.decode("latin-1"), version)
        self.headers = Headers()
        self._parser: HttpRequestParser | None = None
        parser = HttpRequestParser(self)
        try:  # noqa: SIM105 -- contextlib.suppress takes longer, for each request
            parser.feed_data(_PREFACES[version] + head[line.end(3) :])
        except HttpParserUpgrade:
            # No other protocol is supported: it is a request like any other.
            pass
        self._frame(parser)

    def _frame(self, parser: HttpRequestParser) -> None:
        """Find the length of the body. llhttp has refused two lengths, and a length with chunks. parser: for the
        chunks. Raises Refused. Source: RFC 9112, 6.1, 6.3."""
        self.body_bytes_left, self.has_body = 0, False
        if "Transfer-Encoding" in self.headers.by_name:
            is_clear = self.headers["Transfer-Encoding"].lower() == "chunked" and self.line.version == "HTTP/1.1"
            if not is_clear or parser.should_upgrade():
                raise Refused(HTTPStatus.BAD_REQUEST)
            self.body_bytes_left, self.has_body = -1, True
            self._parser, self._tail, self._trailer_bytes = parser, NO_TAIL, 0
            self._pieces: list[bytes] = []
        elif "Content-Length" in self.headers.by_name:
            self.body_bytes_left, self.has_body = int(self.headers["Content-Length"]), True

    def read_body(self, data: bytes, trailer_bytes: int) -> tuple[bytes, bytes]:
        """Return the content of a part of the body, and the bytes not read: those behind the body, or of a chunked
        body those left for the next call. trailer_bytes: how many the trailers may have. Raises Refused,
        HttpParserError."""
        if self._parser is not None:
            return self._read_chunks(self._parser, data, trailer_bytes)
        piece, rest = data[: self.body_bytes_left], data[self.body_bytes_left :]
        self.body_bytes_left -= len(piece)
        return piece, rest

    def _read_chunks(self, parser: HttpRequestParser, data: bytes, trailer_bytes: int) -> tuple[bytes, bytes]:
        """Return what `read_body` returns. A chunked body ends with an empty line. The parser is fed up to the next
        empty line at most, so that it never sees the next request."""
        # Searched in place: in a body of empty lines, a copy of the rest at each of them would take seconds.
        tail_bytes, pieces = len(NO_TAIL), self._pieces
        text, at, fed = self._tail + data, tail_bytes, 0
        view = memoryview(text)
        while at < len(text) and self.body_bytes_left and fed + len(pieces) < FED_TIMES:
            line_end = text.find(END, at - tail_bytes, at + FED_BYTES)
            end = min(at + FED_BYTES, len(text)) if line_end < 0 else line_end + len(END)
            parser.feed_data(view[at:end])
            at, fed = end, fed + 1
        self._tail, rest = text[at - tail_bytes : at], text[at:]
        piece = b"".join(pieces)
        pieces.clear()
        # Bytes without content are trailers, which the parser keeps.
        self._trailer_bytes = 0 if piece else self._trailer_bytes + len(data) - len(rest)
        if self._trailer_bytes > trailer_bytes:
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if not self.body_bytes_left:
            # It refers to this message, too.
            self._parser = None
        return piece, rest

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser. Keep a header. Trailers, which come after the head, are ignored."""
        if self._parser is None:
            text, line = usual_name(name), value.decode("latin-1").strip(" \t")
            if text in self.headers.by_name:
                self.headers.add(text, line)
            else:
                self.headers.by_name[text] = [line]

    def on_body(self, piece: bytes) -> None:
        """Called by the parser. Keep a piece of the content of a chunk."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Called by the parser. The body is complete."""
        self.body_bytes_left = 0
