"""Parses the first line of a request (RFC 9112, 3), and skips the empty lines before it."""

from __future__ import annotations

import re
from http import HTTPStatus

METHOD_CHARACTERS = 32
"""The maximum length of a method. Those registered with IANA have at most 17 characters."""

EMPTY_LINES = 4
"""How many may come before a request line (RFC 9112, 2.2). Some clients send one behind a body."""

_METHOD, _TARGET = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]", rb"[\x21-\x7e\x80-\xff]+"
REQUEST_LINE = re.compile(rb"(%b{1,%d}) (%b) HTTP/1\.([0-9])\r\n" % (_METHOD, METHOD_CHARACTERS, _TARGET))
"""Method, target and minor version. A minor version above 1 is answered as HTTP/1.1 (RFC 9110, 2.5)."""

_LONG_METHOD = re.compile(rb"%b+ %b HTTP/1\.[0-9]\r\n" % (_METHOD, _TARGET))
_OTHER_VERSION = re.compile(rb"[^ \r\n]+ [^ \r\n]+ HTTP/(?!1\.[0-9]\r\n)[0-9]+(\.[0-9]+)?\r\n")


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
