"""The first line of a request (RFC 9112, 3), and what may stand before it."""

from __future__ import annotations

import re
from http import HTTPStatus

METHOD_CHARACTERS = 32
"""Of a method. Those that are registered with IANA have at most 17."""

EMPTY_LINES = 4
"""Before a request line (RFC 9112, 2.2). Some clients send one behind a body."""

_METHOD, _TARGET = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]", rb"[\x21-\x7e\x80-\xff]+"
REQUEST_LINE = re.compile(rb"(%b{1,%d}) (%b) HTTP/1\.([0-9])\r\n" % (_METHOD, METHOD_CHARACTERS, _TARGET))
"""Method, target and minor version. A higher one than 1 is answered as HTTP/1.1 (RFC 9110, 2.5)."""

_LONG_METHOD = re.compile(rb"%b+ %b HTTP/1\.[0-9]\r\n" % (_METHOD, _TARGET))
_OTHER_VERSION = re.compile(rb"[^ \r\n]+ [^ \r\n]+ HTTP/(?!1\.[0-9]\r\n)[0-9]+(\.[0-9]+)?\r\n")


class Refused(Exception):
    """What came is no request that could be answered, but with a bare status. What comes behind it cannot be read."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status)
        self.status = status


def fault_of(head: bytes) -> HTTPStatus:
    """The status for a head whose first line is no `REQUEST_LINE`."""
    if _LONG_METHOD.match(head) is not None:
        return HTTPStatus.NOT_IMPLEMENTED
    return HTTPStatus.BAD_REQUEST if _OTHER_VERSION.match(head) is None else HTTPStatus.HTTP_VERSION_NOT_SUPPORTED


def without_empty_lines(data: bytes) -> tuple[bytes, int]:
    """What follows them, and how many there are, counted up to one more than there may be. The end of a line in
    another form is left: it is no request line."""
    count = 0
    while count <= EMPTY_LINES and data.startswith(b"\r\n", 2 * count):
        count += 1
    return data[2 * count :], count
