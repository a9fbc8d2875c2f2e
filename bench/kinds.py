"""The requests that are measured, one row a kind. What comes out: method, path and body, for any server."""

from __future__ import annotations

import json
from urllib.parse import quote

import msgspec

MEDIA_TYPE = "application/vnd.api+json"

FILTER = [{"name": "group.name", "op": "eq", "val": "Group 7"}, {"name": "age", "op": "ge", "val": 40}]
NEW_USER = {
    "data": {
        "type": "user",
        "attributes": {
            "first_name": "Wanjiru",
            "last_name": "Kamau",
            "age": 36,
            "email": "wanjiru.kamau@example.com",
            "birth_date": "1989-09-09",
            "gender": "female",
            "words": ["maps", "satellites"],
        },
        "relationships": {"group": {"data": {"type": "group", "id": "4"}}},
    }
}


class Kind(msgspec.Struct, frozen=True):
    """target: path and query as sent. total: the `page[total]` of a list, "" where there is none to ask for."""

    name: str
    target: str
    total: str = ""
    method: str = "GET"
    body: str = ""

    @property
    def label(self) -> str:
        return f"{self.name}, total {self.total}" if self.total else self.name


def _lists(name: str, query: str) -> list[Kind]:
    return [Kind(name, f"/users?{query}&page%5Btotal%5D={total}", total) for total in ("none", "exact")]


KINDS: tuple[Kind, ...] = (
    Kind("detail", "/users/4711"),
    *_lists("list 30", "page%5Bsize%5D=30"),
    *_lists("list 30 with include", "page%5Bsize%5D=30&include=computers"),
    *_lists("list 1000 with include", "page%5Bsize%5D=1000&include=computers"),
    *_lists("filtered list 30", f"filter={quote(json.dumps(FILTER, separators=(',', ':')))}&page%5Bsize%5D=30"),
    Kind("create", "/users", method="POST", body=json.dumps(NEW_USER)),
)
