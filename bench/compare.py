"""Compares two answers. It takes two bodies and returns the first difference in words, or "".

A hand-written server must have the same bytes. Another library must have the same content: resources with their types,
ids, attributes and linkage, and `included` as a set; links and meta may differ. After its writes the rows are compared
and not the answers, because the texts of libraries differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

Key = tuple[str, str]

_ID = re.compile(rb'(?<=["/])\d+(?=["/])')


def bytes_differ(ours: bytes, theirs: bytes) -> str:
    """Return the first difference of two bodies, with the bytes around it."""
    if ours == theirs:
        return ""
    index = next((i for i, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other), 0)
    begin = max(0, index - 60)
    return f"at byte {index}: {ours[begin : index + 60]!r} and {theirs[begin : index + 60]!r}"


def without_new_ids(body: bytes, last: int) -> bytes:
    """Replace ids above `last` by their order of appearance, because a sequence may have gaps."""
    seen: dict[bytes, bytes] = {}

    def named(found: re.Match[bytes]) -> bytes:
        return seen.setdefault(found[0], b"new%d" % len(seen)) if int(found[0]) > last else found[0]

    return _ID.sub(named, body)


def content_differs(ours: bytes, theirs: bytes) -> str:
    """Return the first difference of two JSON:API documents. Raises ValueError for invalid JSON."""
    return next(_differences(json.loads(ours), json.loads(theirs)), "")


def _differences(ours: Any, theirs: Any) -> Iterator[str]:
    mine, other = _list(ours.get("data")), _list(theirs.get("data"))
    if [_key(each) for each in mine] != [_key(each) for each in other]:
        yield f"data: {len(mine)} resources, {_shown(mine)}; and {len(other)}, {_shown(other)}"
        return
    for one, another in zip(mine, other, strict=True):
        yield from _resource_differences(one, another)
    included = {_key(each): each for each in _list(ours.get("included"))}
    others = {_key(each): each for each in _list(theirs.get("included"))}
    if included.keys() != others.keys():
        yield f"included: {len(included)} resources and {len(others)}"
        return
    for key, one in included.items():
        yield from _resource_differences(one, others[key])


def _resource_differences(ours: Any, theirs: Any) -> Iterator[str]:
    where = "/".join(_key(ours))
    mine, other = ours.get("attributes", {}), theirs.get("attributes", {})
    for name in sorted({*mine, *other}):
        if mine.get(name, "nothing") != other.get(name, "nothing"):
            yield f"{where}: {name} is {mine.get(name, 'nothing')!r} and {other.get(name, 'nothing')!r}"
    for name, relationship in ours.get("relationships", {}).items():
        if "data" in relationship:
            linked = sorted(map(_key, _list(relationship["data"])))
            others = sorted(map(_key, _list(theirs.get("relationships", {}).get(name, {}).get("data"))))
            if linked != others:
                yield f"{where}: {name} links {linked[:3]} and {others[:3]}"


def _list(data: Any) -> list[Any]:
    return data if isinstance(data, list) else [] if data is None else [data]


def _key(resource: Any) -> Key:
    return resource["type"], str(resource["id"])


def _shown(resources: list[Any]) -> str:
    return ", ".join("/".join(_key(each)) for each in resources[:3])
