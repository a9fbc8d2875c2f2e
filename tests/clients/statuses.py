"""Hooks of schemathesis: what statuses of this server mean, in the words of its checks, answers that are right although
a check expects others, and values of formats that only PostgreSQL can check."""

from __future__ import annotations

import json
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
    "bit": ("1",),
    "varbit": ("1", "101", ""),
    "tsvector": ("'fat':2 'rat':3", "fat", ""),
    "vector": ("[1,2,3]", "[0.5]"),
}
for name, texts in FORMATS.items():
    schemathesis.openapi.format(name, strategies.sampled_from(texts))


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Remove patterns, lengths and examples beside the formats above: schemathesis would take values from them. Remove
    the header Prefer: a resource that was only tried is not there later. Remove the example of a key, which would be
    sent with all requests."""
    _leave_formats(raw_schema["components"]["schemas"])
    raw_schema["components"].get("parameters", {}).get("Idempotency-Key", {}).pop("example", None)
    for path in raw_schema.get("paths", {}).values():
        for member in path.values():
            if isinstance(member, dict) and "parameters" in member:
                member["parameters"] = [one for one in member["parameters"] if not _is_of_tries(one)]


def _is_of_tries(parameter: dict[str, Any]) -> bool:
    return str(parameter.get("$ref", "")).endswith(("/Prefer", "/Prefer.read"))


def _leave_formats(found: Any) -> None:
    if isinstance(found, list):
        for one in found:
            _leave_formats(one)
    elif isinstance(found, dict):
        if isinstance(found.get("format"), str) and found["format"] in FORMATS:
            for name in ("pattern", "minLength", "examples"):
                found.pop(name, None)
        for one in found.values():
            _leave_formats(one)


METHODS = {"GET", "POST", "PATCH", "DELETE"}
GROUPS = ("groupBy", "aggregateAs", "groupFilter", "timeZone")
CHOICES = ("includeFilter[", "includeSort[", "includePage[")
UNPARSED = {"invalid_parameter", "malformed_json"}
NO_FAULT_OF_THE_SCHEMA = {"403", "404", "409"}


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Change the status of answers that the checks do not know.

    - A URL that is too long is refused.
    - Errors with different statuses are in one answer, whose status is 400: a document that fits its schema may have an
      id that does not exist, and another one that is not that of the path.
    - A tag that was made up is not that of a resource, and `*` is the tag of any.
    - A 404 may be about resources that are linked, and not about the one in the path.
    - A key that another request had is refused.
    """
    if response.status_code == 414:
        response.status_code = 400
    elif (response.status_code == 422 and b'"idempotency_mismatch"' in response.content) or response.status_code == 412:
        response.status_code = 409
    elif response.status_code in (400, 404) and response.content:
        errors = response.json()["errors"]
        found = {error["status"] for error in errors}
        if (len(found) > 1 and found <= NO_FAULT_OF_THE_SCHEMA) or all(_is_of_linked(error) for error in errors):
            response.status_code = 409


def _is_of_linked(error: dict[str, Any]) -> bool:
    return error["code"] == "related_not_found" or error["detail"].endswith("” to write.")


@schemathesis.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Return whether a failure of a check is one by the rules of this server, too. The others are counted, and not
    shown."""
    return not any(is_right(failure, case, response) for is_right in _RIGHT.get(failure.code, ()))


def _is_write_forbidden(failure: Any, case: Any, response: Any) -> bool:
    """A write that the declarations switch off is a 403, and not a 405. A relationship is found to be closed after the
    request is parsed: schemathesis sends the parameters of another method, and no body."""
    declared = {method.upper() for method in case.operation.schema[case.operation.path]}
    if case.method in declared or case.method not in ("POST", "PATCH", "DELETE"):
        return False
    is_parsed_first = "/relationships/" in case.operation.path and response.status_code == 400
    return _codes(response) <= (UNPARSED if is_parsed_first else {"write_forbidden"})


def _is_query_without_a_form(failure: Any, case: Any, response: Any) -> bool:
    """OpenAPI 3.1 has no place for the method QUERY. Schemathesis sends it without a form, which is refused."""
    if case.method != "QUERY" or response.status_code not in (400, 415):
        return False
    return all(error.get("source") == {"header": "Content-Type"} for error in response.json()["errors"])


def _allows_query(failure: Any, case: Any, response: Any) -> bool:
    """OpenAPI 3.1 has no place for the method QUERY, which Allow names. The other methods are those of the path."""
    declared = {method.upper() for method in case.operation.schema[case.operation.path]} & METHODS
    allowed = {method.strip() for value in response.headers.get("allow", ()) for method in value.split(",")}
    return allowed - declared <= {"QUERY", "OPTIONS", "HEAD"} and declared <= allowed


def _deletes_no_resource(failure: Any, case: Any, response: Any) -> bool:
    """The DELETE of a relationship removes links. The DELETE of a related resource leaves its path, where the data are
    null."""
    parts = failure.free.split("?")[0].split()[1].strip("/").split("/")
    if len(parts) == 4 and parts[2] == "relationships":
        return True
    return len(parts) == 3 and response.status_code == 200 and response.json()["data"] is None


def _is_pattern_of_a_row(failure: Any, case: Any, response: Any) -> bool:
    """A filter may take its pattern from another attribute, whose text in some row is no pattern."""
    if response.status_code != 400 or _codes(response) != {"value_refused"}:
        return False
    is_of_pattern = all("a regular expression is not valid" in error["detail"] for error in response.json()["errors"])
    return is_of_pattern and _has_pattern_of_a_row(_filter(case))


def _has_pattern_of_a_row(found: Any) -> bool:
    if isinstance(found, list):
        return any(map(_has_pattern_of_a_row, found))
    if not isinstance(found, dict):
        return False
    return (found.get("op") == "match" and "field" in found) or any(map(_has_pattern_of_a_row, found.values()))


def _is_beyond_the_schema(failure: Any, case: Any, response: Any) -> bool:
    """The schemas have no limit for all relationships of an include together, and say of JSON only to some depth that
    names and texts have no U+0000. They do not say that what is chosen must be included, or which texts are filters
    and sorts, nor what groups may be made of."""
    if response.status_code != 400:
        return False
    if any(name.startswith(GROUPS) for name in case.query or {}):
        return True
    faults = [error for error in response.json()["errors"] if error.get("status") not in NO_FAULT_OF_THE_SCHEMA]
    if faults and all(error.get("source", {}).get("parameter", "").startswith(CHOICES) for error in faults):
        return True
    has_nul = "\\u0000" in json.dumps(_filter(case))
    beyond = ["relationships, and at most"] + (["contains U+0000"] if has_nul else [])
    return all(any(part in error["detail"] for part in beyond) for error in response.json()["errors"])


def _is_no_tag(failure: Any, case: Any, response: Any) -> bool:
    """Schemathesis sends the number 0 as a text, which is none of the tags that the pattern allows."""
    return response.status_code == 400 and _codes(response) == {"invalid_tag"} and "0" in case.headers.values()


def _filter(case: Any) -> Any:
    sent = (case.query or {}).get("filter")
    return json.loads(sent) if isinstance(sent, str) else sent


def _codes(response: Any) -> set[str]:
    """Return the codes of the errors. An answer that is no error has none of them."""
    if response.status_code < 400:
        return {"none"}
    return {error["code"] for error in response.json()["errors"]}


_RIGHT = {
    "ST204": (_is_write_forbidden, _is_query_without_a_form),
    "ST205": (_allows_query,),
    "ST301": (_deletes_no_resource,),
    "ST202": (_is_pattern_of_a_row, _is_beyond_the_schema, _is_no_tag),
}
"""Code of a check of schemathesis -> the reasons why an answer can be right although the check fails."""
