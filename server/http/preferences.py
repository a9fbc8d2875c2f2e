"""Reads the preferences of a request: the header Prefer (RFC 7240).

It must not know: resources, documents.
"""

from __future__ import annotations

import re

from server.errors import PreferenceUnsupported
from server.http.headers import Headers

PREFER, PREFERENCE_APPLIED = "Prefer", "Preference-Applied"
COST = "cost"
ROLLBACK, COMMIT = "tx=rollback", "tx=commit"

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_LISTED = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')
_PREFERENCE = re.compile(rf'[ \t]*({_TOKEN})(?:[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|{_TOKEN})?)?')


def wants_rollback(headers: Headers, *, is_possible: bool) -> bool:
    """Return whether a write must be undone when it has been answered: `tx=rollback`. is_possible: whether that can be
    had. Raises PreferenceUnsupported for any other `tx`, so that no write is carried out that was meant as a try.

    >>> wants_rollback(Headers({"Prefer": ["respond-async, tx=rollback"]}), is_possible=True)
    True
    """
    values = headers.by_name.get(PREFER)
    if values is None:
        return False
    sent = {value for text in _LISTED.findall(",".join(values)) if (value := _transaction(text)) is not None}
    if sent == {"rollback"} and is_possible:
        return True
    if sent <= {"commit"}:
        return False
    why = "tx=rollback is not possible here" if sent == {"rollback"} else f"There are {ROLLBACK} and {COMMIT}"
    raise PreferenceUnsupported(f"{why}, so nothing was done: send another Prefer, or none.", header=PREFER)


def wants_cost(headers: Headers) -> bool:
    """Return whether the client wants to know what a read costs: `cost`."""
    values = headers.by_name.get(PREFER)
    if values is None:
        return False
    matches = [_PREFERENCE.match(text) for text in _LISTED.findall(",".join(values))]
    return any(preference is not None and preference[1].lower() == COST for preference in matches)


def _transaction(text: str) -> str | None:
    """Return the value of the preference `tx`, or None for other preferences."""
    match = _PREFERENCE.match(text)
    if match is None or match[1].lower() != "tx":
        return None
    return (match[2] or "").strip('"')
