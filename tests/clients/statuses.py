"""Hooks of schemathesis: what statuses of this server mean, in the words of its checks, and values of formats that only
PostgreSQL can check."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import strategies

FORMATS = {
    "inet": ("10.0.0.1", "10.0.0.0/8", "::1"),
    "cidr": ("10.0.0.0/8", "10.1.2.3"),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "money": ("$12.50", "-3"),
    "xml": ("<a>1</a>", ""),
    "point": ("(1,2)",),
    "line": ("{1,-1,0}",),
    "lseg": ("[(0,0),(1,1)]",),
    "box": ("(2,2),(0,0)",),
    "path": ("[(0,0),(1,1)]", "((0,0),(1,1))"),
    "polygon": ("((0,0),(2,0),(2,2))",),
    "circle": ("<(0,0),1>",),
    "int4range": ("[1,5)", "empty", "(,7]", "(,)"),
    "int8range": ("[1,5)", "empty", "(,7]", "(,)"),
    "numrange": ("[1.5,2]", "empty", "(,7]", "(,)"),
    "tsrange": ('["2024-06-01 12:00:00",)', "empty", "[2024-01-01,2024-01-02)"),
    "tstzrange": ('["2024-06-01 12:00:00+00",)', "empty", "[2024-01-01,2024-01-02)"),
    "daterange": ("[2024-06-01,2024-07-01)", "empty", "(,2024-01-01]"),
    "int4multirange": ("{[1,5),[7,9)}", "{}"),
    "int8multirange": ("{[1,5),[7,9)}", "{}"),
    "nummultirange": ("{[1.5,2]}", "{}"),
    "tsmultirange": ('{["2024-06-01 12:00:00",)}', "{}"),
    "tstzmultirange": ('{["2024-06-01 12:00:00+00",)}', "{}"),
    "datemultirange": ("{[2024-06-01,2024-07-01)}", "{}"),
    "hstore": ('"a"=>"1"', ""),
    "ltree": ("top.science", "top"),
}
for name, texts in FORMATS.items():
    schemathesis.openapi.format(name, strategies.sampled_from(texts))

NO_FAULT_OF_THE_SCHEMA = {"403", "404", "409"}


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Change the status of answers that the checks do not know.

    - A URL that is too long is refused.
    - Errors with different statuses are in one answer, whose status is 400: a document that fits its schema may have an
      id that does not exist, and another one that is not that of the path.
    - A 404 may be about resources that are linked, and not about the one in the path.
    """
    if response.status_code == 414:
        response.status_code = 400
    elif response.status_code in (400, 404) and response.content:
        errors = response.json()["errors"]
        found = {error["status"] for error in errors}
        if (len(found) > 1 and found <= NO_FAULT_OF_THE_SCHEMA) or all(_is_of_linked(error) for error in errors):
            response.status_code = 409


def _is_of_linked(error: dict[str, Any]) -> bool:
    return error["code"] == "related_not_found" or error["detail"].endswith("” to write.")
